"""Every option, declared once, and what is made of the declarations."""
