module github.com/stint-go/stint/policy

go 1.25.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stint-go/stint v0.1.0
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)
