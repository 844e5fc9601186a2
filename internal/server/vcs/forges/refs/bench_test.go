package refs

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// BenchmarkList lists 10 refs of a repository over TLS, as each poll of a repository does. It reports
// the processor time, which includes that of the server.
func BenchmarkList(b *testing.B) {
	var advertisement, list writer
	advertisement.WriteString("001e# service=git-upload-pack\n0000")
	advertisement.line("version 2")
	advertisement.line("ls-refs=unborn")
	advertisement.line("object-format=sha1")
	advertisement.flush()
	for i := range 10 {
		list.line(fmt.Sprintf("%040x refs/heads/branch-%d", i+1, i))
	}
	list.flush()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", advertisementType)
			w.Write(advertisement.Bytes())
			return
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", resultType)
		w.Write(list.Bytes())
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	peer, err := outbound.NewPeer(server.URL, string(authority), outbound.Reach{Anywhere: true})
	if err != nil {
		b.Fatal(err)
	}
	defer peer.Close()
	c := &Client{Peer: peer}
	before := processorTime(b)
	for b.Loop() {
		found, err := c.List(b.Context(), server.URL+"/team/app.git", vcs.Credential{UserName: "x", Password: "token"}, []string{"refs/heads/", "refs/tags/"})
		if err != nil || len(found) != 10 {
			b.Fatal(len(found), err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}

func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
