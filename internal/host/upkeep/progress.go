package upkeep

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"workflowagent/internal/words"
)

// progress displays the progress of a download, but only on a terminal.
type progress struct {
	out   io.Writer // nil if the output is not a terminal
	what  string
	shown int64 // last displayed step
}

func newProgress(out io.Writer, what string) *progress {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return &progress{}
	}
	return &progress{out: out, what: what, shown: -1}
}

// show displays how many of total bytes have been downloaded. total is -1 if unknown.
func (p *progress) show(done, total int64) {
	if p.out == nil {
		return
	}
	const mib = 1 << 20
	step, text := done/mib, words.Bytes(done)
	if total > 0 {
		step = done * 100 / total
		text = fmt.Sprintf("%3d %% of %s", step, words.Bytes(total))
	}
	if step != p.shown {
		p.shown = step
		fmt.Fprintf(p.out, "\rDownloading %s: %s", p.what, text)
	}
}

func (p *progress) finish() {
	if p.out != nil && p.shown >= 0 {
		fmt.Fprintln(p.out)
	}
}
