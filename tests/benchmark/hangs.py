"""A peer whose package never comes to be imported."""

from __future__ import annotations

import time

time.sleep(3600)
