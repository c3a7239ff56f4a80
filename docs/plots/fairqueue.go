package main

import (
	_ "embed"
	"fmt"
)

// fairRun is the output of examples/fairqueue.
//
//go:embed fairqueue.csv
var fairRun string

// drawFairQueue shows how many slots three tenants hold, in the order of arrival and with a fair queue.
func drawFairQueue(dir string) error {
	all, err := readRun("fairqueue.csv", "second", fairRun)
	if err != nil {
		return err
	}
	for _, q := range []struct{ name, file, title string }{
		{"arrival", "fairqueue-arrival", "Eight slots in the order of arrival; bulk sends for 20 s"},
		{"fair", "fairqueue", "Eight slots with a fair queue; bulk sends for 20 s"},
	} {
		columns := all[q.name]
		if columns == nil {
			return fmt.Errorf("fairqueue.csv has no run of %s", q.name)
		}
		err := picture{
			title: q.title,
			x:     "seconds", y: "slots held", xStep: 5, yStep: 2,
			lines: []line{
				{"app, 2 callers", blue, columns["app"]},
				{"shop, 4 callers", grey, columns["shop"]},
				{"bulk, 40 callers", orange, columns["bulk"]},
			},
		}.save(dir, q.file)
		if err != nil {
			return err
		}
	}
	return nil
}
