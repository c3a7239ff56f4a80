module github.com/stint-go/stint/examples/policy

go 1.25.0

require (
	github.com/stint-go/stint v0.1.0
	github.com/stint-go/stint/policy v0.1.0
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
