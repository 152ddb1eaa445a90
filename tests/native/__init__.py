"""The extension modules, called directly."""
