"""The admin listener: health, metrics, configuration, and what operators see and do."""

from gateway.operate.admin.app import AdminPorts, make_admin, start_admin

__all__ = ["AdminPorts", "make_admin", "start_admin"]
