"""circuittest: claims about a language model's circuits as tests."""
