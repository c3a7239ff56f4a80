module github.com/stint-go/stint/cmd/stint

go 1.25.0

require (
	github.com/klauspost/compress v1.20.3
	github.com/spf13/cobra v1.10.2
	github.com/stint-go/stint v0.1.0
	github.com/stint-go/stint/policy v0.1.0
	go.yaml.in/yaml/v4 v4.0.0
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.46.0 // indirect
)
