from fake_sglang.running import fake_server

__all__ = ["fake_server"]
