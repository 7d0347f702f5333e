"""Tests of the vLLM plugin against a real vLLM: `make test-vllm`."""
