package routers

import (
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	stintgin "github.com/stint-go/stint/adapters/gin"
	"github.com/stint-go/stint/internal/test/sitetest"
)

func init() { gin.SetMode(gin.ReleaseMode) }

// useEscapedPath sets what the oldest gin that is supported doesn't have.
func useEscapedPath(e *gin.Engine) {
	if f := reflect.ValueOf(e).Elem().FieldByName("UseEscapedPath"); f.IsValid() {
		f.SetBool(true)
	}
}

// ginSites are the site as gin routes it, by what is set on its Engine.
func ginSites() map[string]http.Handler {
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
		e.Use(stintgin.New(sitetest.Limits()...))
		for _, r := range sitetest.Routes {
			if r.Path != sitetest.BelowAPI {
				e.Handle(r.Method, r.Syntax(":%s", "*%s"), gin.WrapF(r.Handler()))
			}
		}
		all["gin "+name] = e
	}
	return all
}
