package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// growthMarkdown is the report for people.
func growthMarkdown(r *growthReport) string {
	var b strings.Builder
	fmt.Fprintf(&b, "    %s\n\n", r.command)
	fmt.Fprintf(&b, "%s, %s, %s, %d cores shared by clients, proxy and store, load average %s at the start and %s at the end, in %s. fenceproxy %s, Badger %s.\n\n",
		r.date.Format("2006-01-02 15:04 MST"), r.machine.Kernel, r.machine.CPU, r.machine.Cores, r.machine.Load, r.loadEnd, r.duration.Round(time.Second), r.version, badgerVersion())
	storeTable(&b, r)
	touchTable(&b, r)
	idleTable(&b, r)
	return b.String()
}

func storeTable(b *strings.Builder, r *growthReport) {
	if len(r.stores) == 0 {
		return
	}
	fmt.Fprintf(b, "Starts are medians of %d, from `exec` to the first 200 of `/readyz`; rates are medians of %d times %s with %d writers.\n\n",
		r.starts, r.rounds, r.load, r.writers)
	rows := []struct {
		name string
		cell func(f storeFigures) string
	}{
		{"import into an empty store", func(f storeFigures) string { return secondsText(f.filled) }},
		{"disk", func(f storeFigures) string { return mib(f.disk) }},
		{"start / its CPU", func(f storeFigures) string { return startText(f.start) }},
		{"start after `kill -9` / its CPU", func(f storeFigures) string { return startText(f.afterKill) }},
		{"memory after the start", func(f storeFigures) string { return mib(f.start.memory.own) }},
		{"and pages of mapped tables, which the system may take back", func(f storeFigures) string { return mib(f.start.memory.mapped) }},
		{"advances a second through the proxy / its CPU for one, new marks", func(f storeFigures) string { return perSecond(f.through[0]) }},
		{"the same, existing marks", func(f storeFigures) string { return perSecond(f.through[1]) }},
		{"advances a second of the store alone / its CPU for one, new marks", func(f storeFigures) string { return perSecond(f.alone[0]) }},
		{"the same, existing marks", func(f storeFigures) string { return perSecond(f.alone[1]) }},
		{"clean stop after these writes", func(f storeFigures) string { return secondsText(f.stop) }},
		{"load average of the machine at the end of it", func(f storeFigures) string { return f.load }},
	}
	slices.SortFunc(r.stores, func(a, b storeFigures) int { return cmp.Compare(a.marks, b.marks) })
	head := []string{"marks"}
	for _, f := range r.stores {
		head = append(head, number(f.marks))
	}
	table := [][]string{head}
	for _, row := range rows {
		line := []string{row.name}
		for _, f := range r.stores {
			line = append(line, row.cell(f))
		}
		table = append(table, line)
	}
	writeTable(b, table)
}

func touchTable(b *strings.Builder, r *growthReport) {
	if len(r.touched) == 0 {
		return
	}
	fmt.Fprintf(b, "Resources touched once each, by a PUT through the proxy; idle ones leave the gate:\n\n")
	table := [][]string{{"resources touched", "memory", "of it the heap in use", "pages of mapped tables", "entries in the gate"}}
	for _, t := range r.touched {
		table = append(table, []string{number(t.touched), mib(t.memory.own), mib(t.heap), mib(t.memory.mapped), number(t.entries)})
	}
	writeTable(b, table)
}

func idleTable(b *strings.Builder, r *growthReport) {
	f := r.idle
	if f == nil {
		return
	}
	fmt.Fprintf(b, "Clients that keep a connection open and idle, and one that writes %d times meanwhile:\n\n", idleWrites)
	if f.open < f.asked {
		fmt.Fprintf(b, "**The limit of open files allows %s of %s.**\n\n", number(f.open), number(f.asked))
	}
	each := func(n int64) string {
		return fmt.Sprintf("%s, %.1f KiB each", mib(n), float64(n)/1024/float64(f.open))
	}
	writeTable(b, [][]string{
		{"idle connections", "0", number(f.open)},
		{"memory", mib(f.before.own), mib(f.after.own)},
		{"more than without them", "", each(f.after.own - f.before.own)},
		{"of it goroutine stacks", "", each(f.stacks)},
		{"of it heap in use", "", each(f.heap)},
		{"a write with a new mark, p50 / p99", latencyText(f.alone), latencyText(f.beside)},
	})
}

func secondsText(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

func startText(s startFigures) string { return secondsText(s.ready) + " / " + secondsText(s.cpu) }

func perSecond(r rate) string {
	return fmt.Sprintf("%s / %d µs", number(int(r.perSecond)), r.cpu.Microseconds())
}

func latencyText(r rate) string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
	return ms(r.p50) + " / " + ms(r.p99) + " ms"
}

func mib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return number(int(n>>20)) + " MiB"
}

// number writes thousands apart.
func number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
