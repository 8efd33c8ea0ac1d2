package proxy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestManyWritersArriveInTokenOrder has 200 writers with random tokens write at once before a store that takes its time.
func TestManyWritersArriveInTokenOrder(t *testing.T) {
	for _, resources := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d resources", resources), func(t *testing.T) {
			store := newPlainStore()
			store.before = func(*http.Request) { time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) }
			r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {drain_timeout: 60s}")
			type outcome struct {
				write string
				code  int
			}
			const writers = 200
			outcomes := make([]outcome, writers)
			var wg sync.WaitGroup
			for i := range writers {
				wg.Go(func() {
					key := "/k" + strconv.Itoa(i%resources)
					token := strconv.Itoa(1 + rand.IntN(100))
					id := key + "/" + token + "#" + strconv.Itoa(i)
					got, err := r.do("PUT", key, id, "Fencing-Token", token)
					if err != nil {
						t.Errorf("%s: %v", id, err)
					}
					outcomes[i] = outcome{"PUT " + key + " " + token, got.code}
				})
			}
			wg.Wait()
			last := map[string]int{}
			landed := map[string]int{}
			for _, w := range store.applied() {
				landed[w]++
				f := strings.Fields(w)
				token, _ := strconv.Atoi(f[2])
				if token < last[f[1]] {
					t.Errorf("%s landed after a write with %d", w, last[f[1]])
				}
				last[f[1]] = token
			}
			admitted := map[string]int{}
			for _, o := range outcomes {
				switch o.code {
				case 201:
					admitted[o.write]++
				case 412:
				default:
					t.Errorf("%s = %d; want 201 or 412", o.write, o.code)
				}
			}
			if fmt.Sprint(admitted) != fmt.Sprint(landed) {
				t.Errorf("answered 201: %v\nlanded: %v", admitted, landed)
			}
		})
	}
}
