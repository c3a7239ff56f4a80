package policy_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint"
	stinthttp "github.com/stint-go/stint/adapters/std"
)

// TestPriority holds who gets a slot when, which one request at a time doesn't
// show. Requests of the classes given come one after the other, while one of class 0 holds the only slot or both; then
// slots are released one by one, the longest held first.
func TestPriority(t *testing.T) {
	for _, tt := range []struct {
		name, limit, top string
		slots            int
		come             []int
		want             []int
	}{
		{"first come, first served", "queue: 9, max-wait: 1m", "", 1, []int{0, 1, 0, 9}, []int{0, 1, 0, 9}},
		{"by class", "queue: 9, max-wait: 1m", "priority: class", 1, []int{1, 0, 1, 9}, []int{9, 1, 1, 0}},
		{"without a share", "queue: 9, max-wait: 1m", "priority: class", 2, []int{1, 9, 9, 9}, []int{9, 9, 9, 1}},
		{"a share goes before", "queue: 9, max-wait: 1m, shares: [{class: 1, percent: 50}]", "priority: class", 2, []int{1, 9, 9, 9}, []int{1, 9, 9, 9}},
		{"and is of its class", "queue: 9, max-wait: 1m, shares: [{class: 9, percent: 50}]", "priority: class", 2, []int{1, 9, 9, 9}, []int{9, 9, 9, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := "version: 1\nkey: global\nlimits: [{concurrency: " + string(rune('0'+tt.slots)) + ", " + tt.limit + "}]\n" + tt.top + "\n"
				lim, err := stint.New(parse(t, text).Options()...)
				if err != nil {
					t.Fatal(err)
				}
				var order []int
				var release []chan struct{} // in the order of admission
				site := stinthttp.Middleware(lim)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					leave := make(chan struct{})
					order, release = append(order, class(r)), append(release, leave)
					<-leave
				}))
				send := func(class int) {
					r := httptest.NewRequest("GET", "/", nil)
					r.Header.Set("X-Class", strings.Repeat("x", class))
					go site.ServeHTTP(httptest.NewRecorder(), r)
					synctest.Wait()
				}
				for range tt.slots {
					send(0)
				}
				for _, class := range tt.come {
					send(class)
				}
				for i := range tt.slots + len(tt.come) {
					if i >= len(release) {
						t.Fatalf("%d were admitted: %v", i, order)
					}
					close(release[i])
					synctest.Wait()
				}
				if got := order[tt.slots:]; !slices.Equal(got, tt.want) {
					t.Errorf("classes were admitted in the order %v, want %v", got, tt.want)
				}
			})
		})
	}
}
