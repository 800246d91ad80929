"""What pytest sees of the plugin."""
