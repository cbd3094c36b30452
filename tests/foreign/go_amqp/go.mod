module mqops/tests/foreign/go_amqp

// What Debian 12's compiler builds.
go 1.18

require github.com/Azure/go-amqp v1.6.0
