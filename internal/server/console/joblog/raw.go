package joblog

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/console/page"
	logs "workflowagent/internal/server/joblog"
)

// raw sends the log of one step as text.
func (p *pages) raw(w http.ResponseWriter, v *page.Visit) error {
	t, err := p.target(v)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%s-%s.%d.log", v.Stack.OrgName, v.Stack.Project, v.Stack.Name, v.Param(p.name), t.stream+1)
	return serveText(w, v, name, func(out io.Writer) error {
		return p.logs().WriteText(v.Context(), out, t.job, t.epoch, t.stream, coloured(v))
	})
}

// rawAll sends the whole log as text, with the names of the steps.
func (p *pages) rawAll(w http.ResponseWriter, v *page.Visit) error {
	t, err := p.target(v)
	if err != nil {
		return err
	}
	counts, err := p.logs().Counts(v.Context(), t.job, t.epoch)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%s-%s.log", v.Stack.OrgName, v.Stack.Project, v.Stack.Name, v.Param(p.name))
	return serveText(w, v, name, func(out io.Writer) error {
		for stream, lines := range counts {
			if lines == 0 {
				continue
			}
			if _, err := fmt.Fprintf(out, "==> %s\n", logs.StreamName(t.job, stream)); err != nil {
				return err
			}
			if err := p.logs().WriteText(v.Context(), out, t.job, t.epoch, stream, coloured(v)); err != nil {
				return err
			}
		}
		return nil
	})
}

func coloured(v *page.Visit) bool { return v.Query("colours") != "" }

// serveText sends text that write produces: whole and compressed, or the range that the browser
// wants. For a range, it produces the text twice, because it must know the size first.
func serveText(w http.ResponseWriter, v *page.Visit, name string, write func(out io.Writer) error) error {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Accept-Ranges", "bytes")
	h.Add("Vary", "Accept-Encoding")
	kind := "inline"
	if v.Query("download") != "" {
		kind = "attachment"
	}
	h.Set("Content-Disposition", mime.FormatMediaType(kind, map[string]string{"filename": name}))
	if want, ok := parseRange(v.R.Header.Get("Range")); ok && v.R.Header.Get("If-Range") == "" {
		var size counter
		if err := write(&size); err != nil {
			return err
		}
		first, last := want.of(int64(size))
		if first > last {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return nil
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, size))
		h.Set("Content-Length", strconv.FormatInt(last-first+1, 10))
		w.WriteHeader(http.StatusPartialContent)
		_ = write(&section{w: w, skip: first, left: last - first + 1}) // the status has been sent
		return nil
	}
	if !strings.Contains(v.R.Header.Get("Accept-Encoding"), "gzip") {
		_ = write(w) // the status has been sent
		return nil
	}
	h.Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return fmt.Errorf("compressing a log: %w", err)
	}
	if write(z) == nil {
		_ = z.Close() // without its end, the browser sees that the text is incomplete
	}
	return nil
}

// byteRange is the range of a request: from first to last, or the last bytes if first is negative.
type byteRange struct{ first, last int64 }

// parseRange parses a header with one range. Other headers are ignored, as HTTP permits.
func parseRange(header string) (byteRange, bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash || from == "" && to == "" {
		return byteRange{}, false
	}
	r := byteRange{last: 1<<63 - 1}
	if from == "" {
		n, err := strconv.ParseUint(to, 10, 62)
		return byteRange{first: -int64(n), last: r.last}, err == nil && n > 0
	}
	first, err := strconv.ParseUint(from, 10, 62)
	if err != nil {
		return byteRange{}, false
	}
	r.first = int64(first)
	if to != "" {
		last, err := strconv.ParseUint(to, 10, 62)
		if err != nil || last < first {
			return byteRange{}, false
		}
		r.last = int64(last)
	}
	return r, true
}

// of returns the first and the last byte in a text of the given size.
func (r byteRange) of(size int64) (first, last int64) {
	first = r.first
	if first < 0 {
		first = max(0, size+first)
	}
	return first, min(r.last, size-1)
}

type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// section passes on a part of what is written.
type section struct {
	w          io.Writer
	skip, left int64
}

// Write implements io.Writer. It returns io.EOF after the part, which ends the writing.
func (s *section) Write(p []byte) (int, error) {
	n := len(p)
	skipped := min(s.skip, int64(len(p)))
	s.skip -= skipped
	p = p[skipped:]
	if int64(len(p)) > s.left {
		p = p[:s.left]
	}
	if len(p) > 0 {
		if _, err := s.w.Write(p); err != nil {
			return 0, err
		}
	}
	if s.left -= int64(len(p)); s.left == 0 {
		return n, io.EOF
	}
	return n, nil
}
