"""A tiny Llama and its EAGLE-3 draft, trained on the spot: a real target and draft without a model hub.

corpus    prose from the standard library's documentation, and its tokenizer
llama     the target
eagle3    the draft, as SGLang's `LlamaForCausalLMEagle3` reads it
training  both trainings
export    the folders that SGLang serves
"""
