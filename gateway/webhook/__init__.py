"""Webhooks of providers: the gateway verifies an event, reads it by the route's rules, and applies it to its record."""

from gateway.webhook.listener import WebhookListener
from gateway.webhook.receiver import WebhookReceiver

__all__ = ["WebhookListener", "WebhookReceiver"]
