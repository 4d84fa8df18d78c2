"""The paper: its tables, figures and text, made again from the simulator."""
