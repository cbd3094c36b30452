"""What is asked of the node beside AMQP: the admin socket, metrics and health over HTTP."""
