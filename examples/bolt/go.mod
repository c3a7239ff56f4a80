module github.com/stint-go/stint/examples/bolt

go 1.25.0

require (
	github.com/stint-go/stint v0.0.0
	go.etcd.io/bbolt v1.5.0
)

require golang.org/x/sys v0.45.0 // indirect
