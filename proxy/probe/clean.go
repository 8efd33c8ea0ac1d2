package probe

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// cleanTime bounds the cleaning up. A store on the other side of the world takes that long.
const cleanTime = 2 * time.Minute

// clean removes everything that may have been written, and reports what it could not.
func (r *run) clean(ctx context.Context) {
	if len(r.made) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanTime)
	defer cancel()
	r.left, r.mute = 12*len(r.made)+200, 0
	left := func(what string) { r.report.Left = append(r.report.Left, what) }
	if r.settled(ctx) != nil {
		left(r.scratch)
		return
	}
	refs := slices.Clone(r.made)
	slices.Reverse(refs)
	seen := map[ref]bool{}
	refs = slices.DeleteFunc(refs, func(at ref) bool { known := seen[at]; seen[at] = true; return known })
	if !r.couch && r.folders {
		if _, err := r.ask(ctx, request{method: http.MethodDelete, target: r.scratch + "/"}); err != nil {
			left(r.scratch)
			return
		}
	}
	for pass := 0; pass < cleanPasses && len(refs) > 0; pass++ {
		before := len(refs)
		var err error
		if refs, err = r.remove(ctx, refs); err != nil {
			left(r.scratch)
			return
		}
		if pass > 0 && len(refs) == before {
			break
		}
		if pass == 0 && !r.couch {
			r.cleanFolders(ctx)
		}
	}
	for _, at := range refs {
		left(at.target)
	}
	if !r.couch {
		r.lookForFolders(ctx)
	}
	for _, at := range r.lost {
		left(at.target + " (a write to it was not answered, and may still be applied)")
	}
}

// cleanPasses is how often everything that is still there is deleted: a folder may have to go before an object can, and the other way round.
const cleanPasses = 3

// remove deletes the objects that are there, and returns those that may be there still.
func (r *run) remove(ctx context.Context, refs []ref) (still []ref, err error) {
	refused := map[ref]bool{}
	for _, at := range refs {
		got, err := r.get(ctx, at)
		if err != nil {
			return refs, err
		}
		if got.clear && !got.there {
			continue
		}
		answer, err := r.delete(ctx, at)
		if err != nil {
			return refs, err
		}
		refused[at] = !answer.ok() && answer.status != http.StatusNotFound
		still = append(still, at)
	}
	if len(still) == 0 {
		return nil, nil
	}
	if err := r.settled(ctx); err != nil {
		return refs, err
	}
	return slices.DeleteFunc(still, func(at ref) bool {
		got, gerr := r.get(ctx, at)
		if gerr != nil {
			err = gerr
			return false
		}
		// Where reads say nothing, what the store said to the writes has to do.
		return !got.there && (got.clear || !refused[at] || !r.taken[at])
	}), err
}

// cleanFolders deletes the folders that writes made, the deepest first, also where none seems to be: many stores do not show theirs.
func (r *run) cleanFolders(ctx context.Context) {
	dirs := map[string]bool{r.scratch + "/": true}
	for _, at := range r.made {
		path, _, _ := strings.Cut(originForm(at.target), "?")
		for i := len(r.scratch) + 1; i < len(path); i++ {
			if path[i] == '/' {
				dirs[path[:i+1]] = true
			}
		}
	}
	var order []string
	for dir := range dirs {
		order = append(order, dir)
	}
	slices.SortFunc(order, func(a, b string) int { return len(b) - len(a) })
	for _, dir := range order {
		if _, err := r.ask(ctx, request{method: http.MethodDelete, target: dir}); err != nil {
			return
		}
	}
}

// lookForFolders finds out whether the scratch prefix is gone: it is answered as any other path that has nothing.
func (r *run) lookForFolders(ctx context.Context) {
	nothing, err := r.ask(ctx, request{method: http.MethodGet, target: r.scratch + "0/"}) // nothing was ever written there
	got, gerr := r.ask(ctx, request{method: http.MethodGet, target: r.scratch + "/"})
	if err != nil || gerr != nil || got.status != nothing.status {
		r.report.Left = append(r.report.Left, r.scratch+"/")
	}
}
