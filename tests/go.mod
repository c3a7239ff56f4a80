module github.com/stint-go/stint/tests

go 1.25.0

require (
	github.com/dunglas/httpsfv v1.1.2
	github.com/stint-go/stint v0.0.0
)
