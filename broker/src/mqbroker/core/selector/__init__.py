"""Selectors of messages: parsed once, then closures over a view. Source: JMS 2.0, 3.8.1, and Artemis's filters."""
