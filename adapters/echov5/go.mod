module github.com/stint-go/stint/adapters/echov5

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.4.3
	github.com/stint-go/stint v0.1.0
)

require golang.org/x/time v0.15.0 // indirect
