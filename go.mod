module github.com/stint-go/stint

go 1.25.0
