package routers

import (
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	stintgin "github.com/stint-go/stint/adapters/gin"
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
		e.Use(stintgin.New(limits()...))
		for _, r := range routes {
			if r.Path != belowAPI {
				e.Handle(r.Method, r.syntax(":%s", "*%s"), gin.WrapF(r.handler()))
			}
		}
		all["gin "+name] = e
	}
	return all
}
