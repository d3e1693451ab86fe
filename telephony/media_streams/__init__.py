"""Legs over WebSocket media streams: JSON text messages with base64 audio, as Twilio defined them."""
