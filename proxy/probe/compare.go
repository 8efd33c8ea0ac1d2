package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Weakness is where a configuration trusts the store more than the probe does.
type Weakness struct {
	Policy  string // its name
	Option  string // what to set: "identity.case"; empty if nothing can be set
	Value   string
	Message string
}

// Compare holds a configuration against the report. A policy is weak where it accepts two spellings that the store takes for one object, and
// gives them two keys, or fences one of them and lets the other pass. It tries them on a request made up for each policy; a policy for
// which none can be made up is named in a Weakness of its own, so that silence is never mistaken for strength.
func (r *Report) Compare(set *policies.Set) []Weakness {
	var out []Weakness
	all := set.Policies()
	if p := set.Unmatched(); p != nil {
		all = append(all, p)
	}
	samples := set.Samples()
	for _, p := range all {
		if p.Mode == policies.Off {
			continue
		}
		out = append(out, r.compareBehaviour(p)...)
		q, ok := sampleOf(set, p, samples)
		if !ok {
			out = append(out, Weakness{Policy: p.Name, Message: "no request could be made up for it, so its identity was not compared with the store"})
			continue
		}
		out = append(out, r.compareSpellings(set, p, q)...)
		out = append(out, r.compareHost(set, p, q)...)
	}
	return out
}

// sampleOf is a request, with a token, that p fences.
func sampleOf(set *policies.Set, p *policies.Policy, samples map[string]policies.Sample) (policies.Sample, bool) {
	q, ok := samples[p.Name]
	if !ok {
		q = policies.Sample{Method: "PUT", Target: samplePath(p.Path())}
		if methods := p.Methods(); len(methods) > 0 {
			q.Method = methods[0]
			if i := slices.IndexFunc(methods, func(m string) bool { return !policies.Safe(m) }); i >= 0 {
				q.Method = methods[i]
			}
		}
	}
	if q.Host == "" {
		q.Host = "sample.example.test"
	}
	header := map[string]string{}
	for name, value := range q.Header {
		header[name] = value
	}
	if names := p.TokenHeaders(); len(names) > 0 {
		header[names[0]] = map[fencing.Format]string{fencing.Hex: "0x1", fencing.Znode: "0000000001", fencing.Pair: "1.1"}[p.Format]
		if header[names[0]] == "" {
			header[names[0]] = "1"
		}
	}
	q.Header = header
	return q, len(set.Keys(q)) > 0 && decide(set, q).Policy == p
}

// samplePath puts text in the place of a pattern's wildcards.
func samplePath(pattern string) string {
	segs := strings.Split(pattern, "/")
	for i, seg := range segs {
		switch {
		case seg == "{$}":
			segs[i] = ""
		case strings.HasPrefix(seg, "{"), seg == "" && i > 0 && i == len(segs)-1:
			segs[i] = fmt.Sprintf("sample%d", i)
		}
	}
	return strings.Join(segs, "/")
}

func decide(set *policies.Set, q policies.Sample) policies.Decision {
	h := make(map[string][]string, len(q.Header))
	for name, value := range q.Header {
		h[name] = []string{value}
	}
	return set.Decide(&policies.Request{Method: q.Method, Target: q.Target, Host: q.Host, Header: h})
}

// splitsUp reports whether set accepts both requests, and not under one key.
func splitsUp(set *policies.Set, a, b policies.Sample) bool {
	first, second := set.Keys(a), set.Keys(b)
	switch {
	case len(first) == 0:
		return false // nothing is fenced here
	case len(second) > 0:
		return !slices.Equal(first, second)
	}
	return decide(set, b).Action == policies.Pass
}

func (r *Report) compareSpellings(set *policies.Set, p *policies.Policy, q policies.Sample) []Weakness {
	var out []Weakness
	table := spellings()
	if r.evidence.couch {
		for i := range table {
			if table[i].id == "encoded-slash" {
				table[i] = flatSlash()
			}
		}
	}
	known := map[string]bool{}
	for i := range table {
		s := &table[i]
		if s.absolute || s.host != nil || s.id == "query" || r.Row(s.id).Same != Same {
			continue
		}
		plain, other, found := r.split(set, p, q, s)
		about := s.option
		if about == "" {
			about = s.id
		}
		if !found || known[about] {
			continue
		}
		known[about] = true
		w := Weakness{Policy: p.Name, Message: fmt.Sprintf("the store takes %s and %s for one object, and the policy does not", plain, other)}
		if s.option != "" {
			w.Option, w.Value = "identity."+s.option, safest(s.option)
		}
		out = append(out, w)
	}
	return out
}

// split looks for a place in the path of q where a spelling gets another key.
func (r *Report) split(set *policies.Set, p *policies.Policy, q policies.Sample, s *spelling) (plain, other string, found bool) {
	path, query, _ := strings.Cut(q.Target, "?")
	if query != "" {
		query = "?" + query
	}
	segs := strings.Split(strings.Trim(path, "/"), "/")
	for i, name := range slices.Backward(segs) { // the probe varied the last one
		if name == "" || s.id == "trailing-slash" && i < len(segs)-1 {
			continue
		}
		dir, rest := strings.Join(append([]string{""}, segs[:i]...), "/"), ""
		if i < len(segs)-1 {
			rest = "/" + strings.Join(segs[i+1:], "/")
		}
		a, b := q, q
		plain, other = s.paths(dir, name)
		plain, other = plain+rest, other+rest
		a.Target, b.Target = plain+query, other+query
		if d := decide(set, a); d.Policy == p && plain != other && splitsUp(set, a, b) {
			return plain, other, true
		}
	}
	return "", "", false
}

// safest is the value of an option to set where spellings are one object: the default, unless that would split them.
func safest(option string) string {
	if value := defaults("http")[option]; effects()[option][value] != splits {
		return value
	}
	return merging(option)
}

func (r *Report) compareHost(set *policies.Set, p *policies.Policy, q policies.Sample) []Weakness {
	if !r.same("host-foreign") {
		return nil
	}
	other := q
	other.Host = foreignHost
	if len(set.Keys(other)) == 0 || !splitsUp(set, q, other) {
		return nil
	}
	return []Weakness{{
		Policy: p.Name, Option: "resource", Value: "a template without {host}",
		Message: "the store gives one object whatever the Host, and the policy names the resource by it: a writer with another Host has a mark of its own",
	}}
}

func (r *Report) compareBehaviour(p *policies.Policy) []Weakness {
	var out []Weakness
	settle := Weakness{Policy: p.Name, Option: "settle", Value: r.settle().String()}
	switch {
	case r.late > p.Settle:
		settle.Message = fmt.Sprintf("a PUT showed %s after its answer, and settle is %s", r.late.Round(10*time.Millisecond), p.Settle)
		out = append(out, settle)
	case r.async && p.Settle == 0:
		settle.Message = "a PUT is answered with 202, before it is applied, and settle is 0s"
		out = append(out, settle)
	}
	for _, id := range []string{"cut-fin", "cut-reset"} {
		if v := r.Check(id).Verdict; p.Stream && (v == truncated || v == gone) {
			return append(out, Weakness{Policy: p.Name, Option: "request_body", Value: "spool", Message: "an upload that breaks off destroys the object, and the policy streams"})
		}
	}
	return out
}

// Fix says what to set, or what else helps; it may be empty.
func (w Weakness) Fix() string {
	switch {
	case w.Option != "":
		return fmt.Sprintf("set %s: %s", w.Option, w.Value)
	case strings.Contains(w.Message, "one object"):
		return "no option reads paths like that: keep one of the two away from the store, in front of the proxy"
	}
	return ""
}

// String is the weakness in a sentence.
func (w Weakness) String() string {
	text := "the policy " + w.Policy + ": " + w.Message
	if fix := w.Fix(); fix != "" {
		text += " (" + fix + ")"
	}
	return text
}
