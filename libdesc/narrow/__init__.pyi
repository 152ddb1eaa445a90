from .recurrence import dynamic_lstm as dynamic_lstm
