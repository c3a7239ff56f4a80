package stintgin

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint/internal/routetest"
)

// useEscapedPath sets what the oldest gin that is supported doesn't have.
func useEscapedPath(e *gin.Engine) {
	if f := reflect.ValueOf(e).Elem().FieldByName("UseEscapedPath"); f.IsValid() {
		f.SetBool(true)
	}
}

// sites are the test site as gin routes it, by what is set on its Engine.
func sites() map[string]http.Handler {
	all := map[string]http.Handler{}
	for name, set := range map[string]func(*gin.Engine){
		"default":          func(*gin.Engine) {},
		"UseRawPath":       func(e *gin.Engine) { e.UseRawPath = true },
		"UseEscapedPath":   useEscapedPath,
		"RemoveExtraSlash": func(e *gin.Engine) { e.RemoveExtraSlash = true },
		"UseRawPath and RemoveExtraSlash": func(e *gin.Engine) {
			e.UseRawPath, e.RemoveExtraSlash = true, true
		},
	} {
		e := gin.New()
		set(e)
		e.Use(New(routetest.Limits()...))
		for _, r := range routetest.Routes {
			if r.Path != routetest.BelowAPI {
				e.Handle(r.Method, r.Syntax(":%s", "*%s"), gin.WrapF(r.Handler()))
			}
		}
		all[name] = e
	}
	return all
}

func TestNoSpellingSlipsPast(t *testing.T) {
	for name, site := range sites() {
		t.Run(name, func(t *testing.T) { routetest.Run(t, site) })
	}
}

func FuzzSpellings(f *testing.F) { routetest.Fuzz(f, sites()) }
