// Command store is a plain REST store in memory, of the kind that knows nothing of fencing tokens: the last write wins. It stands for
// the store that you already have.
//
//	PUT, GET, DELETE /any/path       keep, return, drop a body
//	POST /orders {"order": {"id": 7, ...}}       keep the body under /orders/7
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "serve on `ADDRESS`")
	flag.Parse()
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("store: serving on %s\n", ln.Addr())
	server := &http.Server{Handler: &store{objects: map[string][]byte{}}, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.Serve(ln))
}

type store struct {
	mu      sync.Mutex // guards objects
	objects map[string][]byte
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // cut off: nothing is kept
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		v, ok := s.objects[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(append(v, '\n')) // the client may be gone
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path] = body
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && r.URL.Path == "/orders":
		var in struct {
			Order struct {
				ID json.Number `json:"id"`
			} `json:"order"`
		}
		if err := json.Unmarshal(body, &in); err != nil || in.Order.ID == "" {
			http.Error(w, "the order has no id", http.StatusBadRequest)
			return
		}
		s.objects["/orders/"+in.Order.ID.String()] = body
		w.WriteHeader(http.StatusCreated)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}
