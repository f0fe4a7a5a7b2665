"""The admin listener: health, metrics, configuration, and what operators see and do."""

from gateway.operate.admin.app import AdminPorts, make_admin, start_admin
from gateway.operate.admin.entrance import Entrance, Settings

__all__ = ["AdminPorts", "Entrance", "Settings", "make_admin", "start_admin"]
