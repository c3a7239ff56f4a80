package policy_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/policy"
)

// mistake is a file that can't be used, and everything that is to be said
// about it.
type mistake struct {
	name string
	text string
	// schema is whether the schema sees it too, in what is YAML at all.
	schema bool
	want   []string // without the file's name
}

// one is the place and text of a mistake in the only limit of a file.
func one(limit string, schema bool, want ...string) mistake {
	return mistake{limit, "version: 1\nkey: remote-ip\nlimits:\n- " + limit + "\n", schema, want}
}

// top is a mistake in a field at the top, in line 4.
func top(text string, schema bool, want ...string) mistake {
	return mistake{text, "version: 1\nkey: remote-ip\nlimits: [{rate: 1/s}]\n" + text + "\n", schema, want}
}

// keyed is a mistake in a key, in line 2.
func keyed(text string, schema bool, want ...string) mistake {
	return mistake{text, "version: 1\nkey: " + text + "\nlimits: [{rate: 1/s}]\n", schema, want}
}

var mistakes = []mistake{
	// The document.
	{"nothing", "", false, []string{`1:1: the file is empty: write "version: 1" and limits`}},
	{"only a comment", "# later\n", false, []string{`1:1: the file is empty: write "version: 1" and limits`}},
	{"an empty document", "---\n", true, []string{`2:1: a policy must be a mapping: write version: 1, key and limits`}},
	{"a list", "- version: 1\n", true, []string{`1:1: a policy can't be a list: write version: 1, key and limits`}},
	{"no version", "key: global\nlimits: [{rate: 1/s}]\n", true, []string{`1:1: no version: write version: 1`}},
	{"another version", "version: 2\nkey: global\nlimits: [{rate: 1/s}]\n", true, []string{`1:10: unknown version: write version: 1`}},
	{"version in quotes", "version: \"1\"\nkey: global\nlimits: [{rate: 1/s}]\n", true, []string{`1:10: unknown version: write version: 1`}},
	{"nothing limited", "version: 1\nkey: global\n", true, []string{`1:1: nothing is limited: write limits, such as [{name: per-client, rate: 100/1m}]`}},
	{"two documents", "version: 1\nkey: global\nlimits: [{rate: 1/s}]\n---\nversion: 1\n", false, []string{`4:1: a second document: a policy is one document: leave out what follows ---`}},
	{"a tab", "version: 1\nkey: global\nlimits:\n\t- {rate: 1/s}\n", false, []string{`4:1: found character that cannot start any token: indent with spaces, not with tabs`}},
	{"an open bracket", "version: 1\nlimits: [{rate: 1/s}\nkey: global\n", false, []string{`3:1: did not find expected ',' or ']'`}},
	{"bytes that are no text", "version: 1\nkey: \"\xff\"\n", false, []string{`2:7: a byte that isn't text: save the file as UTF-8`}},
	{"a zero byte", "version: 1\nkey: a\x00b\n", false, []string{`2:7: a byte that isn't text: save the file as UTF-8`}},
	{"UTF-16", "\xff\xfev\x00", true, []string{`1:1: a byte that isn't text: save the file as UTF-8`}},
	{"halves of a character, as JSON escapes it", `{"version": 1, "key": "\ud83d\ude00"}`, false, []string{`1:26: found invalid Unicode character escape code`}},
	{"an anchor, an alias, a merge and a tag", "version: 1\nkey: &k remote-ip\nlimits: [{rate: 1/s, key: *k}, {<<: {rate: 2/s}}, {rate: !!str 3/s}]\n", false, []string{
		`2:6: anchors and aliases are not used in a policy: name the limit or the key, and write its name where it is used again`,
		`3:27: anchors and aliases are not used in a policy: name the limit or the key, and write its name where it is used again`,
		`3:33: << is not used in a policy: write the fields out`,
		`3:58: the tag !!str is not used in a policy: leave it out`,
	}},
	{"fields that are unknown, double, empty or no text", "verison: 1\nversion: 1\nkey: global\nkey: global\nlimits: [{rate: 1/s}]\nroutes:\n1: x\nfallback: x\n", false, []string{
		`1:1: unknown field "verison" of a policy: write version`,
		`4:1: "key" is set twice, first in line 3: leave one out`,
		`6:1: "routes" has no value: write one, or leave it out`,
		`7:1: a name must be text: put it in quotes`,
		`8:1: unknown field "fallback" of a policy: write version, domain, keys, dry-run, key, cost, settle, max-wait, near-limit, failure, empty-key, priority, limits, routes, plans, default-plan, headers, deny-handler, retry-jitter, skip or block`,
	}},
	{"a double key in JSON", `{"version": 1, "key": "global", "limits": [{"rate": "1/s", "rate": "2/s"}]}`, false, []string{`1:60: "rate" is set twice, first in line 1: leave one out`}},

	// Fields of a limit.
	one("{rate: 100/1m, burts: 20}", true, `4:18: unknown field "burts" of a limit: write burst`),
	one("{rate: 100/1m, max_wait: 2s}", true, `4:18: unknown field "max_wait" of a limit: write max-wait`),
	one("{rate: 100/1m, MaxWait: 2s}", true, `4:18: unknown field "MaxWait" of a limit: write max-wait`),
	one("{rtae: 100/1m}", true, `4:4: unknown field "rtae" of a limit: write rate`),
	one("{name: a}", true, `4:3: a limit without a kind: write one, such as {name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8`),
	one("{rate: 1/s, quota: 1/daily}", true, `4:22: quota beside rate: make it a limit of its own`),
	one("{rate: 1/d1s}", true, `4:10: duration "d1s": write one such as 30s, 5m, 1h30m or 1d`),
	one("per-client", false, `4:3: a limit's name may stand only in a route: write the limit here, {name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8`),
	one("12", true, `4:3: a limit must be a mapping, or the name of a limit: write {name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8`),
	one("[{rate: 1/s}]", true, `4:3: a limit can't be a list: write {name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8`),
	one("{rate: 1/s, name: 1st}", true, `4:21: name 1st: use a letter, followed by up to 63 of A-Z a-z 0-9 _ . -`),
	one("{rate: 1/s, name: 1}", true, `4:21: name must be text: write a letter, then up to 63 of A-Z a-z 0-9 _ . -`),
	one("{rate: 1/s, dry-run: yes}", true, `4:24: dry-run must be true or false: write one of them`),
	one("{rate: 1/s, failure: opne}", true, `4:24: unknown failure policy "opne": write open`),
	one("{rate: 1/s, failure: [open]}", true, `4:24: failure policy must be a word: write open or closed`),
	one("{rate: 1/s, cost: rosw}", false, `4:21: unknown cost "rosw": write rows; functions are registered with policy.WithCostFunc`),
	one("{rate: 1/s, cost: 0}", true, `4:21: cost must be a whole number of at least 1: write one, such as 100 or 10_000`),
	one("{rate: 1/s, max-wait: 2}", true, `4:25: max-wait must be a duration: write one such as 30s, 5m, 1h30m or 1d`),
	one("{rate: 1/s, max-wait: 0s}", false, `4:25: max-wait of 0: write a positive duration, or leave it out`),
	one("{rate: 1/s, max-wait: -2s}", true, `4:25: duration "-2s": write one such as 30s, 5m, 1h30m or 1d`),

	one("{rate: 1/s, near-limit: 80}", true, `4:27: near-limit must be a list: write [80, 95]`),
	one("{rate: 1/s, near-limit: []}", true, `4:27: near-limit is empty: write some percentages, such as [80, 95]`),
	one("{rate: 1/s, near-limit: [80, 0, 101, 80%]}", true, `4:32: a percentage of near-limit must be a whole number from 1 to 100: write one`,
		`4:35: a percentage of near-limit must be a whole number from 1 to 100: write one`, `4:40: a percentage of near-limit must be a whole number from 1 to 100: write one`),
	one("{concurrency: 8, near-limit: [80]}", true, `4:32: near-limit doesn't go with concurrency: leave it out, or make it a limit with rate or quota`),
	one("{rate: 10/m, warm-up: 1s, near-limit: [80]}", false,
		`4:41: its percentages are of the burst, and the limit has no burst: leave it out, or use burst in place of warm-up`),

	one("{rate: 1/s, settle: failed}", false, `4:23: unknown settle "failed": write tokens, failed-only or {refund-on: [...]}; functions are registered with policy.WithSettleFunc`),
	one("{rate: 1/s, settle: {}}", true, `4:23: settle is empty: write failed-only or {refund-on: [304, 503]}`),
	one("{rate: 1/s, settle: {refund: [304]}}", true, `4:24: unknown field "refund" of settle: write refund-on`),
	one("{rate: 1/s, settle: {refund-on: []}}", true, `4:35: refund-on names no status: write some, such as [304, 503]`),
	one("{rate: 1/s, settle: {refund-on: [3xx, 600]}}", true,
		`4:36: a status must be a whole number of at least 200: write one`,
		`4:41: 600 isn't the status of a response: write 200 to 599`),

	// Numbers and times.
	one("{rate: 100}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 100 per minute}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 1.5/s}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: -1/s}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 99999999999999999999/s}", false, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 1__0/s}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 010/s}", true, `4:10: a rate must be a number, a slash and a time: write it like 100/1m or 10/s`),
	one("{rate: 100/1M}", true, `4:10: duration "1M": write numbers with the units ns, us, ms, s, m, h, d or w, such as 1h30m`),
	one("{rate: 100/min}", true, `4:10: duration "1min": write numbers with the units ns, us, ms, s, m, h, d or w, such as 1h30m`),
	one("{rate: 100/60}", true, `4:10: duration "60": write numbers with the units ns, us, ms, s, m, h, d or w, such as 1h30m`),
	one("{rate: 100/1.s}", true, `4:10: duration "1.s": write digits after the point, or leave it out`),
	one("{rate: 10/0.0000000001s}", false, `4:10: duration "0.0000000001s": write a whole number of nanoseconds`),
	one("{rate: 10/1.05ns}", false, `4:10: duration "1.05ns": write a whole number of nanoseconds`),
	one("{rate: 10/20000w}", false, `4:10: duration "20000w": write less than 292 years`),
	one("{rate: 10/99999999999999999999s}", false, `4:10: duration "99999999999999999999s": write less than 292 years`),
	one("{rate: 10/15000w15000w}", false, `4:10: duration "15000w15000w": write less than 292 years`),
	one("{rate: 10/1500ns}", false, `4:10: a period of 1.5µs: use 1ms or more`),
	one("{rate: 10/0s}", false, `4:10: a period of 0s: use 1ms or more`),
	one("{rate: 10/3000d}", false, `4:10: a period of 72000h0m0s: use at most two years`),
	one("{rate: 0/s}", false, `4:10: 0 units: use 1 to 1099511627776`),
	one("{rate: 2_000_000_000_000/s}", false, `4:10: 2000000000000 units: use 1 to 1099511627776`),
	one("{rate: 1/s, burst: 1.5}", true, `4:22: burst must be a whole number of at least 0: write one, such as 100 or 10_000`),
	one("{rate: 1/s, burst: 0x10}", false, `4:22: burst must be a whole number of at least 0: write one, such as 100 or 10_000`),
	one("{rate: 1/s, burst: 010}", false, `4:22: burst must be a whole number of at least 0: write one, such as 100 or 10_000`),
	one("{rate: 1/s, burst: {}}", true, `4:22: burst must be a whole number of at least 0: write one, such as 100 or 10_000`),

	// Numbers that don't go together: what stint.New says, where it belongs.
	one("{rate: 1/s, burst: 0}", false, `4:22: a burst of 0 lets nothing pass: use at least 1, or add debt: true`),
	one("{rate: 1/s, algorithm: fixed-window, burst: 3, queue: 4}", false,
		`4:47: fixed-window has no burst: leave it out, or use the algorithm token-bucket`,
		`4:57: fixed-window has no queue: leave it out, or use the algorithm leaky-bucket`),
	one("{rate: 1/s, warm-up: 1s, debt: true}", false, `4:34: warm-up always allows debt: leave it out`),
	one("{rate: 1/s, algorithm: sliding-log, debt: true, buckets: 5}", false,
		`4:45: sliding-log can't go into debt: leave it out, or use the algorithm token-bucket`,
		`4:60: only a sliding-window is divided into buckets: leave it out, or use the algorithm sliding-window`),
	one("{rate: 1/s, algorithm: warm-up}", true, `4:26: unknown algorithm "warm-up": write token-bucket, interval-bucket, leaky-bucket, fixed-window, sliding-window, sliding-counter or sliding-log`),
	one("{rate: 1/s, warm-up: 1s, algorithm: leaky-bucket}", false, `4:24: leaky-bucket doesn't warm up: leave algorithm or warm-up out`),
	one("{rate: 1/s, warm-up: 1500ns}", false, `4:24: warm-up 1500ns: use 1ms or more`),
	one("{rate: 1/s, algorithm: sliding-window, buckets: 7000}", false, `4:51: buckets 7000: use 1 to 1000`),
	one("{rate: 1/s, queue: 10000000000000}", false, `4:22: queue 10000000000000: use 0 to 1099511627776`),
	one("{rate: 1/s, algorithm: sliding}", true, `4:26: unknown algorithm "sliding": write sliding-log`),
	one("{rate: 1/s, algorithm: TokenBuket}", true, `4:26: unknown algorithm "TokenBuket": write token-bucket`),
	one("{rate: 1/s, in: UTC}", true, `4:19: in doesn't go with rate: leave it out, or make it a limit with quota`),
	one("{quota: 1/daily, queue: 3, debt: true}", true,
		`4:27: queue doesn't go with quota: leave it out, or make it a limit with rate, concurrency or adaptive-concurrency`,
		`4:36: debt doesn't go with quota: leave it out, or make it a limit with rate`),
	one("{quota: 1/daily, algorithm: token-bucket}", false, `4:31: token-bucket can't have a quota: use fixed-window or interval-bucket`),
	one("{quota: 1/day}", true, `4:11: unknown window "day": write hourly, daily, weekly, monthly or yearly, or a duration such as 6h`),
	one("{quota: 1/dayly}", true, `4:11: unknown window "dayly": write daily, or a duration such as 6h`),
	one("{quota: 1000}", true, `4:11: a quota must be a number, a slash and a time: write it like 10_000/daily or 500/6h`),
	one("{quota: 1/daily, in: Europe/Berlni}", false, `4:24: unknown time zone "Europe/Berlni": write UTC or a name such as Europe/Berlin; a program without a zone database imports time/tzdata`),
	one("{quota: 1/daily, in: Local}", false, `4:24: unknown time zone "Local": write UTC or a name such as Europe/Berlin; a program without a zone database imports time/tzdata`),
	one("{quota: 1/daily, in: 1}", true, `4:24: in must be text: write a time zone, such as Europe/Berlin`),
	one("{quota: 1/monthly, from: soon}", false, `4:28: from must be the time at which a window begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/monthly, from: '2026-01-31T09:00:00.5Z'}", false, `4:28: from must be the time at which a window begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/monthly, from: '2026-01-31T09:00:00,5Z'}", false, `4:28: from must be the time at which a window begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/daily, from: '09:00:00,5'}", false, `4:26: from must be the time at which a window begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/weekly, from: 'Monday 09:00:00.5'}", false, `4:27: from must be the time at which a window begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/monthly, from: Monday}", false, `4:28: from Monday doesn't say when a window of the quota begins: write a date and time such as 2026-01-31T09:00:00Z, Monday or Monday 09:00 for weekly, 09:00 for daily, 00:30 for hourly`),
	one("{quota: 1/monthly, from: 0001-01-01T00:00:00Z}", false, `4:28: its windows begin at the zero time: pass the time at which a window begins, or leave from out`),
	one("{rate: 1/1s, from: Monday}", true, `4:22: from doesn't go with rate: leave it out, or make it a limit with quota`),
	one("{quota: 1/6h, in: UTC}", false, `4:21: a window made by every has no time zone: leave in out, or use a calendar window such as daily`),
	one("{concurrency: 0}", true, `4:17: concurrency must be a whole number of at least 1: write one, such as 100 or 10_000`),
	one("{concurrency: 8, burst: 3}", true, `4:27: burst doesn't go with concurrency: leave it out, or make it a limit with rate, quota or bandwidth`),

	one("{adaptive-concurrency: 200}", true, `4:26: adaptive-concurrency must be a range: write it like 10-200`),
	one("{adaptive-concurrency: [10, 200]}", true, `4:26: adaptive-concurrency must be a range: write it like 10-200`),
	one("{adaptive-concurrency: 20-10}", false, `4:26: adaptive-concurrency 20-10: write a minimum of 1 or more, and a maximum of no less`),
	one("{adaptive-concurrency: 1-2_000_000}", false, `4:26: adaptive-concurrency 1-2_000_000: use a min of 1 or more, and a max from min to 1000000`),
	one("{adaptive-concurrency: 10-20, initial-limit: 5}", false, `4:48: initial-limit 5: use 10 to 20, the range of the limit`),
	one("{adaptive-concurrency: 10-20, adaptation: {gradient2: 0.5}, sample-window: 5ms}", true,
		`4:57: gradient2 0.5: use 1 to 100`),
	one("{adaptive-concurrency: 10-20, sample-window: 5ms}", false,
		`4:48: sample-window 5ms: use 100ms or more`),
	one("{adaptive-concurrency: 10-20, adaptation: {aimd: 99us}}", false,
		`4:52: aimd 99us: use 1ms or more`),
	one("{adaptive-concurrency: 10-20, adaptation: {gradient2: 1e1}}", false,
		`4:57: the tolerance of gradient2 must be a factor of 1 or more: write one such as 1.5`),
	one("{adaptive-concurrency: 10-20, adaptation: gradient2}", true,
		`4:45: unknown adaptation "gradient2": write vegas, {gradient2: 1.5} or {aimd: 150ms}`),
	one("{adaptive-concurrency: 10-20, adaptation: [vegas]}", true,
		`4:45: an adaptation can't be a list: write vegas, {gradient2: 1.5} or {aimd: 150ms}`),
	one("{adaptive-concurrency: 10-20, adaptation: {amd: 1s}}", true,
		`4:46: unknown field "amd" of an adaptation: write aimd`),
	one("{adaptive-concurrency: 10-20, adaptation: {gradient2: 2, aimd: 1s}}", true,
		`4:45: an adaptation must have one form: write vegas, {gradient2: 1.5} or {aimd: 150ms}`),
	one("{concurrency: 10, adaptation: vegas}", true, `4:33: adaptation doesn't go with concurrency: leave it out, or make it a limit with adaptive-concurrency`),

	one("{ban: 20/1m, for: 1h}", false, `4:3: there is no rate or quota whose denials the ban could count: add a rate or a quota with the ban's key`),
	one("{ban: 20/1m}", true, `4:9: a ban without for: write it beside it, such as for: 1h`),
	one("{ban: 20, for: 1h}", true, `4:9: a ban must be a number, a slash and a time: write it like 20/1m`),
	one("{ban: 0/m, for: 1h}", false, `4:9: 0 denials: use 1 to 1000`),
	one("{ban: 1001/m, for: 9000h}", false,
		`4:9: 1001 denials: use 1 to 1000`,
		`4:22: for 9000h: use 1ms to 8760h, which is a year`),
	one("{ban: 3/m, for: 0s}", false, `4:19: for of 0: write a positive duration, or leave it out`),
	one("{ban: 3/m, for: 1h, cost: 2, max-wait: 1s, settle: failed-only}", true,
		`4:29: cost doesn't go with ban: leave it out, or make it a limit with rate, quota, concurrency or adaptive-concurrency`,
		`4:42: max-wait doesn't go with ban: leave it out, or make it a limit with rate, quota, concurrency or adaptive-concurrency`,
		`4:54: settle doesn't go with ban: leave it out, or make it a limit with rate or quota`),
	one("{concurrency: 3, settle: failed-only}", true,
		`4:28: settle doesn't go with concurrency: leave it out, or make it a limit with rate or quota`),
	one("{ban: 3/m, for: 1h, queue: 2}", true,
		`4:30: queue doesn't go with ban: leave it out, or make it a limit with rate, concurrency or adaptive-concurrency`),
	one("{rate: 1/s, for: 1h}", true, `4:20: for doesn't go with rate: leave it out, or make it a limit with ban`),

	one("{bandwidth: 1000000}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1MB}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1Mb/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1mb/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 64KB/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1_000_000/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1.5MB/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1 MB/s}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 8MB/m}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: [1MB/s]}", true, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 99999999999GiB/s}", false, `4:15: a bandwidth must be a number of bytes a second, with its unit: write it like 1MB/s or 512KiB/s, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{bandwidth: 1023B/s}", false, `4:15: bandwidth 1023B/s: use 1024 to 68719476736 bytes per second`),
	one("{bandwidth: 65GiB/s, burst: 64KiB}", false, `4:15: bandwidth 65GiB/s: use 1024 to 68719476736 bytes per second`),
	one("{bandwidth: 1MB/s, burst: 4kB}", false, `4:29: a burst this small splits a body into many chunks, and each costs a call of the store: use 4096 to 1099511627776`),
	one("{bandwidth: 1MB/s, burst: 65536}", false, `4:29: burst must be a number of bytes, with its unit: write it like 64KiB, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{burst: 64KB, bandwidth: 1MB/s}", true, `4:11: burst must be a number of bytes, with its unit: write it like 64KiB, in B, kB, MB or GB (thousands), or KiB, MiB or GiB (1024s)`),
	one("{rate: 1/s, burst: 64KiB}", false, `4:22: burst must be a whole number of at least 0: write one, such as 100 or 10_000`),
	one("{bandwidth: 1MB/s, direction: up}", true, `4:33: unknown direction "up": write responses, requests or both`),
	one("{bandwidth: 1MB/s, queue: 3, algorithm: leaky-bucket}", true,
		`4:29: queue doesn't go with bandwidth: leave it out, or make it a limit with rate, concurrency or adaptive-concurrency`,
		`4:43: algorithm doesn't go with bandwidth: leave it out, or make it a limit with rate or quota`),
	one("{bandwidth: 1MB/s, cost: 2, settle: failed-only, max-wait: 1s}", true,
		`4:28: cost doesn't go with bandwidth: leave it out, or make it a limit with rate, quota, concurrency or adaptive-concurrency`,
		`4:39: settle doesn't go with bandwidth: leave it out, or make it a limit with rate or quota`,
		`4:62: max-wait doesn't go with bandwidth: leave it out, or make it a limit with rate, quota, concurrency or adaptive-concurrency`),
	one("{rate: 1/s, direction: both}", true, `4:26: direction doesn't go with rate: leave it out, or make it a limit with bandwidth`),

	one("{concurrency: 8, shares: {9: 30}}", true, `4:28: shares must be a list: write [{class: 9, percent: 30}]`),
	one("{concurrency: 8, shares: []}", true, `4:28: shares is empty: write some, such as [{class: 9, percent: 30}]`),
	one("{concurrency: 8, shares: [9, {class: 9}, {percent: 9}, {clas: 1, percent: 3}]}", true,
		`4:29: a share must be a mapping: write {class: 9, percent: 30}`,
		`4:32: a share must have a class and a percentage: write both, such as {class: 9, percent: 30}`,
		`4:44: a share must have a class and a percentage: write both, such as {class: 9, percent: 30}`,
		`4:59: unknown field "clas" of a share: write class`),
	one("{concurrency: 8, shares: [{class: 10, percent: 0}, {class: -1, percent: 101}, {class: high, percent: 30%}]}", true,
		`4:37: class must be a whole number from 0 to 9: write one`,
		`4:50: percent must be a whole number from 1 to 100: write one`,
		`4:62: class must be a whole number from 0 to 9: write one`,
		`4:75: percent must be a whole number from 1 to 100: write one`,
		`4:89: class must be a whole number from 0 to 9: write one`,
		`4:104: percent must be a whole number from 1 to 100: write one`),
	one("{concurrency: 8, shares: [{class: 1, percent: 60}, {class: 2, percent: 41}]}", false,
		`4:54: the shares add up to 101 percent: use at most 100 in total`),
	one("{concurrency: 8, shares: [{class: 1, percent: 10}, {class: 2, percent: 10}, {class: 1, percent: 20}]}", false,
		`4:79: the class has a share already: leave one out`),
	one("{concurrency: 8, queue: 9, fair-queue: {heder: X-Tenant}}", true, `4:43: unknown field "heder" of a key: write header`),
	one("{concurrency: 8, fair-queue: {header: X-Tenant}}", false, `4:3: no request may wait for a slot, and a fair queue only orders waiting requests: use queue or max-wait, or leave the fair queue out`),
	one("{concurrency: 8, queue: 9, fair-queue: global}", false,
		`4:42: this key is the same for all requests, so they would be one tenant: use a key that identifies the tenant, or leave the fair queue out`),
	one("{concurrency: 8, queue: 9, shares: [{class: 1, percent: 10}], fair-queue: {header: X-Tenant}}", false,
		`4:77: it orders waiting requests by tenant, but shares orders them by class: leave one of the two out`),
	one("{adaptive-concurrency: 1-8, queue: 9, fair-queue: global}", true,
		`4:53: fair-queue doesn't go with adaptive-concurrency: leave it out, or make it a limit with concurrency`),
	one("{rate: 1/s, shares: [{class: 1, percent: 10}]}", true,
		`4:24: shares doesn't go with rate: leave it out, or make it a limit with concurrency or adaptive-concurrency`),

	// Columns are of characters.
	{"beside other letters", "version: 1\nkeys: {ключ: {haeder: a}}\nkey: ключ\nlimits: [{rate: 1/s}]\n", true, []string{`2:15: unknown field "haeder" of a key: write header`}},

	// Names.
	{"limits of one name", "version: 1\nkey: global\nlimits:\n- {rate: 1/s}\n- {rate: 2/s}\n- {name: a, rate: 2/s}\nroutes:\n  /: {limits: [{name: a, rate: 1/s}, {quota: 1/daily}]}\n  /a: {limits: [{quota: 2/daily}]}\n", false, []string{
		`5:3: a limit without a name gets the name "rate", as does the one in line 4: write a name`,
		`8:16: the name "a" is taken in line 6: write another, or the name alone to have that limit here, too: [a]`,
		`9:17: a limit without a name gets the name "daily", as does the one in line 8: write a name`,
	}},
	{"names of limits", "version: 1\nkey: global\nroutes:\n  /: {limits: [{name: login, rate: 1/s}]}\n  /a: {limits: [logn, login, login]}\n", false, []string{
		`5:17: no limit is called "logn": write login`,
		`5:30: the limit "login" is listed twice: leave one out`,
	}},

	// Keys.
	{"no key", "version: 1\nlimits: [{rate: 1/s}]\nroutes:\n  /a: {key: global, limits: [{name: a, rate: 1/s}]}\n  /b: {limits: [{name: b, rate: 1/s, key: global}, {name: c, rate: 1/s}]}\nplans: {free: {limits: []}}\n", false, []string{
		`2:10: a limit without a key, and no default is safe: write a key here or at the top, such as remote-ip, behind a proxy {forwarded-ip: {trusted: [...]}}, or global for all requests together`,
		`5:52: a limit without a key, and no default is safe: write a key here or at the top, such as remote-ip, behind a proxy {forwarded-ip: {trusted: [...]}}, or global for all requests together`,
		`6:8: plans without a default key: write a key at the top`,
	}},
	keyed("remoteip", false, `2:6: unknown key "remoteip": write remote-ip; keys of the application are registered with policy.WithKey`),
	keyed("session", false, `2:6: unknown key "session": write given, global, method, pattern, remote-ip or tenant, or a form such as {header: X-API-Key}; keys of the application are registered with policy.WithKey`),
	keyed("{header: x-forwarded-for}", false, `2:15: a client can write anything into this field: write {forwarded-ip: {trusted: [...]}} with the addresses of your proxies`),
	keyed("header", false, `2:6: the key "header" needs a value: write it, as in {header: X-API-Key}`),
	keyed("forwarded-ip", false, `2:6: the key "forwarded-ip" needs a value: write it, as in {forwarded-ip: {trusted: [10.0.0.0/8]}}`),
	keyed("[remote-ip]", true, `2:6: a key can't be a list: write remote-ip, {forwarded-ip: {trusted: [10.0.0.0/8]}} or {header: X-API-Key}`),
	keyed("{}", true, `2:6: a key must have one form, and this has 0: write one, such as remote-ip, {forwarded-ip: {trusted: [10.0.0.0/8]}} or {header: X-API-Key}; to key on several things at once, {join: [...]}`),
	keyed("{header: A, cookie: b}", true, `2:6: a key must have one form, and this has 2: write one, such as remote-ip, {forwarded-ip: {trusted: [10.0.0.0/8]}} or {header: X-API-Key}; to key on several things at once, {join: [...]}`),
	keyed("{haeder: A}", true, `2:7: unknown field "haeder" of a key: write header`),
	keyed("{global: true}", true, `2:7: the key "global" takes no value: write it alone, as in key: global`),
	keyed("{join: [{tenant: 1}, {pattern: {}}]}", true,
		`2:15: the key "tenant" takes no value: write it alone, as in key: tenant`,
		`2:28: the key "pattern" takes no value: write it alone, as in key: pattern`),
	keyed("{header: Host}", false, `2:15: Host isn't among the header fields of Go's requests: register a key with policy.WithKey, and write its name`),
	keyed("{header: x y}", false, `2:15: this isn't a valid name of a header field: use letters, digits and hyphens, such as "X-API-Key"`),
	keyed("{cookie: 'a;'}", false, `2:15: this isn't a valid name of a cookie: use letters, digits, - and _, such as "session"`),
	keyed("{join: []}", true, `2:13: join is empty: write keys, such as [{header: X-Tenant}, pattern]`),
	keyed("{join: [patern, {header: ''}]}", true,
		`2:14: unknown key "patern": write pattern; keys of the application are registered with policy.WithKey`,
		`2:31: a header field must be text: write its name, such as X-API-Key`),
	keyed("{first-of: []}", true, `2:17: first-of is empty: write keys, such as [{header: X-API-Key}, remote-ip]`),
	keyed("{first-of: [remote-ip, {header: X-API-Key}]}", false, `2:17: remote-ip is never empty, so the keys after it are never used: put it last, or leave out the keys after it`),
	keyed("{join: [given, pattern]}", false, `2:13: given can't be a part of a key: use it alone, and pass the whole key to Take`),
	keyed("{hash: given}", false, `2:13: given can't be hashed: hash the key yourself, and pass the hash to Take`),
	keyed("{forwarded-ip: [10.0.0.0/8]}", true, `2:21: a key by address can't be a list: write {trusted: [10.0.0.0/8]}`),
	keyed("{forwarded-ip: {trusted: 10.0.0.0/8}}", true, `2:31: trusted must be a list: write [10.0.0.0/8, 2001:db8::/32]`),
	keyed("{forwarded-ip: {trusted: []}}", true, `2:31: trusted names no network: write some, such as [10.0.0.0/8]`),
	keyed("{forwarded-ip: {trusted: [10.0.0.0/33, lo, 'fe80::1%eth0']}}", true,
		`2:32: "10.0.0.0/33" isn't a network: write one such as 10.0.0.0/8, or an address`,
		`2:45: "lo" isn't a network: write one such as 10.0.0.0/8, or an address`,
		`2:49: "fe80::1%eth0" isn't a network: write one such as 10.0.0.0/8, or an address`),
	keyed("{forwarded-ip: {trusted: [0.0.0.0/0]}}", false, `2:21: trusting 0.0.0.0/0 lets every client forge its address: pass the addresses that your proxies connect from`),
	keyed("{forwarded-ip: {ipv6-bits: 64}}", true, `2:21: no proxy is trusted, so X-Forwarded-For would never be read: pass the addresses that your proxies connect from, such as 10.0.0.0/8, or use remote-ip if there is no proxy`),
	keyed("{remote-ip: {ipv6-bits: 32}}", true, `2:30: ipv6-bits must be a whole number of at least 48: write one`),
	keyed("{remote-ip: {ipv6-bits: 129}}", true, `2:30: 129 bits of an IPv6 address: write 48 to 128`),
	keyed("{remote-ip: {trusted: [10.0.0.0/8]}}", true, `2:19: unknown field "trusted" of a key by address: write ipv6-bits`),
	keyed("{single-ip-header: {trusted: [10.0.0.0/8]}}", true, `2:25: no header field: write its name, such as {name: CF-Connecting-IP, trusted: [10.0.0.0/8]}`),
	keyed("{single-ip-header: {name: x-forwarded-for, trusted: [10.0.0.0/8]}}", false, `2:32: x-forwarded-for is a list: write {forwarded-ip: {trusted: [...]}}`),
	keyed("{single-ip-header: {name: Forwarded, trust-unix: true}}", false, `2:32: Forwarded is a list: write {forwarded-header-ip: {trusted: [...]}}`),
	{"names of keys", "version: 1\nkey: b\nkeys:\n  a: {join: [b, remote-ip]}\n  b: a\n  global: remote-ip\n  tenant: remote-ip\n  unused: {header: 'a b'}\nlimits: [{rate: 1/s}]\n", true, []string{
		`5:6: the key "a" refers to itself: write another`,
		`6:3: "global" is a key already: write another name`,
		`7:3: "tenant" is registered with policy.WithKey: write another name`,
		`8:20: this isn't a valid name of a header field: use letters, digits and hyphens, such as "X-API-Key"`,
	}},

	// Routes.
	{"routes that say nothing", "version: 1\nkey: global\nlimits: [{rate: 1/s}]\nroutes:\n  /a: {limits: []}\n  /b: {only: []}\n  /c: {exempt: true, cost: 1}\n  /d: {exempt: false}\n  /e: {limits: [{name: e, rate: 1/s}], only: [{name: f, rate: 1/s}]}\n", true, []string{
		`5:16: no limits: write some, or exempt: true if requests of the route have none`,
		`6:14: no limits: write some, or exempt: true if requests of the route have none`,
		`7:3: exempt beside something else: leave one out`,
		`8:3: a route with nothing: write limits, only, a cost, or exempt: true`,
		`8:16: exempt: false says nothing: leave it out`,
		`9:46: both limits and only: leave one out: limits adds to the limits of less specific routes, only replaces them`,
	}},
	{"settings of a route without limits", "version: 1\nkey: global\nlimits: [{rate: 1/s}]\nroutes:\n  /a: {max-wait: 1s}\n  /b: {key: global}\n", false, []string{
		`5:3: no limit of the route uses this option: leave it out, or add a rate, a quota or a concurrency to the route`,
		`6:3: no limit of the route uses this option: leave it out, or add a limit to the route`,
	}},
	{"patterns", "version: 1\nkey: global\nroutes:\n  POST login: {exempt: true}\n  GET /{a}/x: {exempt: true}\n  GET /x/{a}: {exempt: true}\n  /a: {}\n  /b:\n  /a: {exempt: true}\n  /c: []\n  /d: {exempt: true, limit: 1}\n", false, []string{
		`4:3: the path is missing: use "POST /login"`,
		`6:3: pattern "GET /x/{a}" conflicts with pattern "GET /{a}/x": make one of them more specific`,
		`7:3: a route with nothing: write limits, only, a cost, or exempt: true`,
		`8:3: "/b" has no value: write one, or leave it out`,
		`9:3: "/a" is set twice, first in line 7: leave one out`,
		`10:7: a route can't be a list: write {limits: [{name: login, rate: 5/1m}]}, or {exempt: true}`,
		`11:22: unknown field "limit" of a route: write limits`,
	}},
	top("routes: {/: {limits: {rate: 1/s}}}", true, `4:22: limits must be a list: write [{name: per-client, rate: 100/1m}]`),

	// Plans.
	top("plans: {}", true, `4:8: plans is empty: write some, or leave it out`),
	top("default-plan: free", true, `4:15: default-plan without plans: write plans, or leave it out`),
	top("default-plan: fre\nplans: {free: {limits: []}}", false, `4:15: no plan is called "fre": write free`),
	top("plans: {free: [{rate: 1/s}], pro: {}, team: {limits: [rate]}, x: {limits: [{rate: 2/s}, {name: y, rate: 3/s}, {name: y, rate: 4/s}]}}", true,
		`4:15: a plan can't be a list: write {limits: [{name: requests, quota: 1000/daily}]}`,
		`4:30: a plan without limits: write them, or limits: [] for none`,
		`4:55: a plan can't use limits by name: write the limit here, {name: per-client, rate: 100/1m}, or with quota: 10_000/daily, or concurrency: 8`,
		`4:76: a plan's limit needs a name, because its counts are kept under the name: write one`,
		`4:111: the name "y" is taken in line 4: write another`),

	// The rest.
	top("priority: clas", false,
		`4:11: unknown priority "clas": write class; functions are registered with policy.WithPriorityFunc`),
	top("deny-handler: sory", false,
		`4:15: unknown deny-handler "sory": write sorry; handlers are registered with policy.WithDenyHandler`),
	top("priority: 9", true,
		`4:11: priority must be text: write the name of a function given to policy.WithPriorityFunc`),
	top("headers: rate-limit", true, `4:10: unknown header style "rate-limit": write ratelimit`),
	top("headers: []", true, `4:10: headers names no style: write ratelimit, x-ratelimit, x-ratelimit-unix or none`),
	top("headers: [x-ratelimit, x-ratelimit-unix]", true, `4:10: one X-RateLimit-Reset can't be both seconds and a Unix time: leave x-ratelimit or x-ratelimit-unix out`),
	top("headers: [ratelimit, none]", true, `4:10: none beside another style: leave one out`),
	top("retry-jitter: 5", true, `4:15: retry-jitter must be a duration: write one such as 30s, 5m, 1h30m or 1d`),
	top("empty-key: allow", true, `4:12: unknown empty-key "allow": write deny or skip`),
	top("skip: preflight", true, `4:7: skip must be a list: write [preflight, {cidr: [10.0.0.0/8]}]`),
	top("skip: [prefligt, {cdir: [10.0.0.0/8]}, {}, {cidr: ['::ffff:0:0/80']}]", true,
		`4:8: unknown entry "prefligt" of skip: write preflight; predicates of the application are registered with policy.WithPredicate`,
		`4:19: unknown field "cdir" of an entry of skip: write cidr`,
		`4:40: an entry of skip without networks: write entries such as [preflight, {cidr: [10.0.0.0/8]}]`,
		`4:51: ::ffff:0.0.0.0/80 contains all of IPv4 and more: use IPv4 notation, such as 10.0.0.0/8`),
	top("block: [{key: {header: X-API-Key}, cidr: [10.0.0.0/8]}]", false, `4:15: the key of an entry of block must be an address: write remote-ip or {forwarded-ip: {trusted: [...]}}`),
	top("block: [intrenal]", false, `4:9: unknown entry "intrenal" of block: write internal; predicates of the application are registered with policy.WithPredicate`),
}

// goWords are Go's words, which the author of a file shouldn't have to understand.
var goWords = regexp.MustCompile(`\bstint\.|\bnetip\.|\btime\.[A-Z]|\bWith[A-Z]|[A-Z][a-z]+(Bucket|Window|Log|Up)\b|\(registered at`)

func TestMistakes(t *testing.T) {
	for _, tt := range mistakes {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Parse("policy.yaml", []byte(tt.text), registered...)
			var all policy.Errors
			if !errors.As(err, &all) {
				t.Fatalf("%v, want Errors", err)
			}
			for i, e := range all {
				if i >= len(tt.want) || e.Error() != "policy.yaml:"+tt.want[i] {
					t.Errorf("not wanted: %v", e)
				}
				if word := goWords.FindString(strings.ReplaceAll(e.Text, "policy.With", "")); word != "" {
					t.Errorf("%q is not a word of files: %v", word, e)
				}
			}
			if len(all) != len(tt.want) || t.Failed() {
				t.Errorf("%d mistakes, want %d:\n%s", len(all), len(tt.want), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// What a file refers to has to be given in Go.
func TestNotGiven(t *testing.T) {
	_, err := policy.Parse("p.yaml", []byte("version: 1\nkey: {hash: remote-ip}\nlimits: [{rate: 1/s, key: tenant}]\nplans: {free: {limits: []}}\n"))
	want := `p.yaml:2:13: hash needs a secret, which doesn't belong in a file: set it with policy.WithSecret
p.yaml:3:27: unknown key "tenant": write given, global, method, pattern or remote-ip, or a form such as {header: X-API-Key}; keys of the application are registered with policy.WithKey
p.yaml:4:8: plans need a function that returns a request's plan: register one with policy.WithPlanFunc`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestSize(t *testing.T) {
	_, err := policy.Parse("p.yaml", make([]byte, 1<<20+1))
	if want := "p.yaml:1:1: the file has 1048577 bytes: write at most 1048576"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	var long strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&long, `,"GET /%d": {"exempt": true}`, i)
	}
	if _, err := policy.Parse("p.json", []byte(`{"version": 1, "key": "global", "limits": [{"rate": "1/s"}], "routes": {`+long.String()[1:]+`}}`)); err != nil {
		t.Errorf("a long line: %v", err)
	}
	// As deep as a file can be.
	for _, text := range []string{
		"version: 1\nlimits: [{rate: 1/s}]\nkey: " + strings.Repeat("{hash: ", 9000) + "global" + strings.Repeat("}", 9000),
		strings.Repeat("[", 1<<19), strings.Repeat("{a: ", 1<<17), strings.Repeat("- ", 1<<19),
	} {
		if _, err := policy.Parse("p.yaml", []byte(text), registered...); err == nil && !strings.HasPrefix(text, "version") {
			t.Errorf("%.20q was taken", text)
		}
	}
}
