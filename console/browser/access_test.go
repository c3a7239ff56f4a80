package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// busy is a page with everything on it: load, denials, and a banned key looked up.
func busy(t *testing.T) (site, context.Context) {
	s, ctx := newSite(t), browse(t)
	for range 5 {
		s.ask(t, "/", "bob")
		s.ask(t, "/login", "mallory")
	}
	run(t, ctx, chromedp.Navigate(link(s.URL)))
	says(t, ctx, "#state", "Live")
	run(t, ctx, chromedp.SetValue(chromedp.CSS(`input[name=key]`), "mallory"), chromedp.Click(chromedp.CSS(`button[value=look]`)))
	says(t, ctx, ".found", "banned for")
	says(t, ctx, "#state", "Live")
	return s, ctx
}

// A ban is lifted by itself: what the key has consumed stays.
func TestBanIsLifted(t *testing.T) {
	_, ctx := busy(t)
	run(t, ctx, chromedp.Click(chromedp.CSS(`button[value=lift]`)))
	says(t, ctx, ".found", "The bans of this key are lifted")
	says(t, ctx, ".found", "not banned; denials until it is: 3")
	says(t, ctx, ".found", "0 of 1 left, would be denied")
	if lift := get(t, ctx, chromedp.Evaluate[bool](`!!document.querySelector("button[value=lift]")`)); lift {
		t.Error("a ban can be lifted that isn't there")
	}
}

// The Tab key reaches all that can be used, in the order in which it is read, and what
// has the focus can be seen.
func TestTabOrder(t *testing.T) {
	_, ctx := busy(t)
	get(t, ctx, chromedp.Evaluate[string](`document.activeElement.blur() ?? ""`))
	var order []string
	for range 40 {
		run(t, ctx, chromedp.KeyEvent(kb.Tab))
		at := get(t, ctx, chromedp.Evaluate[string](`(e => e === document.body ? "" :
			e.innerText || [e.name, e.value].join(" "))(document.activeElement)`))
		if at == "" || len(order) > 0 && at == order[0] {
			break
		}
		order = append(order, at)
		seen := get(t, ctx, chromedp.Evaluate[bool](`(e => { const s = getComputedStyle(e), r = e.getBoundingClientRect();
			return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 && r.right > 0 && r.left < innerWidth && r.width > 0; })(document.activeElement)`))
		if !seen {
			t.Errorf("%s has the focus, and doesn't show it", at)
		}
	}
	want := []string{"Skip to the figures", "What is limited", "key mallory", "Look up", "Pause", "close", "Link to this key", "Lift the bans of this key", "Reset this key, and lift its bans",
		"Ban this key for an hour", "Ban this key for a day", "Ban this key for 30 days",
		"shop", "caller", "bob", "workers", "login", "mallory", "ban", "mallory"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
	run(t, ctx, chromedp.Focus(chromedp.CSS(".skip")), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	if at := get(t, ctx, chromedp.Evaluate[string](`document.activeElement.innerText`)); at != "close" {
		t.Errorf("the link to the figures leads to %s", at)
	}
}

// said is a node of what the browser tells a screen reader.
type said struct {
	role, name string
	properties map[accessibility.PropertyName]string
}

func tree(t *testing.T, ctx context.Context) (all []said) {
	t.Helper()
	got, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		t.Fatal(err)
	}
	text := func(v *accessibility.Value) string {
		if v == nil || len(v.Value) == 0 {
			return ""
		}
		var is any
		if err := json.Unmarshal([]byte(v.Value), &is); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(is)
	}
	for _, n := range got.Nodes {
		if n.Ignored {
			continue
		}
		s := said{text(n.Role), text(n.Name), map[accessibility.PropertyName]string{}}
		for _, p := range n.Properties {
			s.properties[p.Name] = text(p.Value)
		}
		all = append(all, s)
	}
	return all
}

// A screen reader is told what each thing is, and isn't interrupted by figures.
func TestScreenReader(t *testing.T) {
	_, ctx := busy(t)
	nodes := tree(t, ctx)
	names := map[string][]string{} // by role
	level := 0
	for _, n := range nodes {
		names[n.role] = append(names[n.role], n.name)
		if n.properties["focusable"] == "true" && strings.TrimSpace(n.name) == "" {
			t.Errorf("a %s that can have the focus has no name", n.role)
		}
		if n.role == "heading" {
			var now int
			_, _ = fmt.Sscan(n.properties["level"], &now)
			if now > level+1 {
				t.Errorf("heading %q is of level %d, after one of level %d", n.name, now, level)
			}
			level = now
		}
		if live := n.properties["live"]; live != "" && (live != "polite" || n.role != "status") {
			t.Errorf("a %s interrupts: live is %s", n.role, live)
		}
	}
	for role, want := range map[string][]string{
		"RootWebArea":  {"stint: what is limited"},
		"main":         {""},
		"heading":      {"What is limited", "mallory", "Nothing is wrong", "shop"},
		"textbox":      {"Key"},
		"button":       {"Pause", "Look up", "Lift the bans of this key", "Reset this key, and lift its bans", "Ban this key for a day"},
		"link":         {"Skip to the figures", "close", "shop", "login"},
		"region":       {"Nothing is wrong", "shop"},
		"columnheader": {"limit", "denied, last 5 min", "denied most, else admitted most", "fullest key, last 5 min", "fullest key now"},
		"rowheader":    {"caller", "workers", "login", "ban"},
		"meter":        {"caller: 2 of 3 left", "login: 0 of 1 left"},
	} {
		for _, name := range want {
			if !slices.Contains(names[role], name) {
				t.Errorf("no %s is called %q, but %q", role, name, names[role])
			}
		}
	}
	drawn := 0
	for _, name := range slices.Concat(names["image"], names["img"]) {
		if !strings.Contains(name, "over five minutes: ") || !strings.Contains(name, " now ") {
			t.Errorf("a chart is called %q", name)
		}
		drawn++
	}
	if drawn != 4 { // one of each limit
		t.Errorf("%d charts", drawn)
	}
	if n := len(names["status"]); n != 2 {
		t.Errorf("%d things are announced, want 2: the connection, and the key that was looked up", n)
	}
}

// Figures that change are no announcement: only what is Live is, once.
func TestAnnouncements(t *testing.T) {
	s, ctx := newSite(t), browse(t)
	run(t, ctx, chromedp.Navigate(link(s.URL)))
	says(t, ctx, "#state", "Live")
	get(t, ctx, chromedp.Evaluate[string](`(() => { window.announced = 0; for (const e of document.querySelectorAll("[role=status], [aria-live]"))
		new MutationObserver(() => announced++).observe(e, {childList: true, characterData: true, subtree: true}); return ""; })()`))
	for i := range 3 {
		s.ask(t, "/", fmt.Sprint("k", i))
		says(t, ctx, "#board0", fmt.Sprint("allowed ", i+1))
	}
	if n := get(t, ctx, chromedp.Evaluate[int](`announced`)); n != 0 {
		t.Errorf("%d announcements", n)
	}
	run(t, ctx, chromedp.Click(chromedp.CSS("#pause")))
	says(t, ctx, "#state", "Paused")
	if n := get(t, ctx, chromedp.Evaluate[int](`announced`)); n != 1 {
		t.Errorf("%d announcements of a pause", n)
	}
}
