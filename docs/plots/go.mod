module github.com/stint-go/stint/docs/plots

go 1.25.0

require github.com/stint-go/stint v0.0.0
