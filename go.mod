module github.com/stint-go/stint

go 1.25.0

require github.com/sony/gobreaker/v2 v2.4.0

require github.com/dunglas/httpsfv v1.1.2 // indirect
