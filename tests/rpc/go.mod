module github.com/stint-go/stint/tests/rpc

go 1.25.0

require (
	connectrpc.com/connect v1.20.0
	github.com/stint-go/stint v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20251202230838-ff82c1b0f217
	google.golang.org/grpc v1.79.3
	google.golang.org/protobuf v1.36.11
)

require (
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	golang.org/x/text v0.32.0 // indirect
)
