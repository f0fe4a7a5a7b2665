"""Webhooks of providers: verified, read by a route's rules, and applied to the record that they are about."""

from gateway.webhook.listener import WebhookListener
from gateway.webhook.receiver import WebhookReceiver

__all__ = ["WebhookListener", "WebhookReceiver"]
