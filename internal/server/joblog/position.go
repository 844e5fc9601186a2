package joblog

import (
	"fmt"
	"strconv"
	"strings"

	"workflowagent/internal/server/fault"
)

// position is a reader's position in the log. Clients send it as the continuation token
// "epoch.step.offset.flags.left", so the server stores no reader state. left contains the offsets
// at which the reader left earlier steps. At the end, the reader receives the lines of those steps
// that arrived later.
type position struct {
	epoch  int64
	step   int   // len(steps) is the agent's stream, len(steps)+1 the server's notes
	offset int64 // in bytes; for notes, the number of notes
	header bool  // the header of the step was sent
	told   int64 // number of the last wait reason that the reader received
	left   []int64
}

func parsePosition(token string) (position, error) {
	if token == "" {
		return position{epoch: 1}, nil
	}
	bad := fault.Invalid("the continuationToken is invalid: read the log from the beginning")
	parts := strings.Split(token, ".")
	if len(parts) != 5 || len(token) > maxToken {
		return position{}, bad
	}
	var n [4]int64
	for i, part := range parts[:4] {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 {
			return position{}, bad
		}
		n[i] = v
	}
	if n[0] < 1 || n[1] > 1<<20 || n[3]>>1 > maxReason {
		return position{}, bad
	}
	p := position{epoch: n[0], step: int(n[1]), offset: n[2], header: n[3]&1 != 0, told: n[3] >> 1}
	if parts[4] == "" {
		return p, nil
	}
	for part := range strings.SplitSeq(parts[4], "-") {
		v, err := strconv.ParseInt(part, 10, 64)
		if err != nil || v < 0 {
			return position{}, bad
		}
		p.left = append(p.left, v)
	}
	return p, nil
}

const maxReason = 255

// maxToken is the maximum size of a continuation token in bytes. Each step uses only a few bytes.
const maxToken = 16 << 10

func (p position) String() string {
	flags := p.told << 1
	if p.header {
		flags |= 1
	}
	left := make([]string, len(p.left))
	for i, v := range p.left {
		left[i] = strconv.FormatInt(v, 10)
	}
	return fmt.Sprintf("%d.%d.%d.%d.%s", p.epoch, p.step, p.offset, flags, strings.Join(left, "-"))
}

func (p position) next() position {
	return position{epoch: p.epoch, step: p.step + 1, told: p.told, left: append(p.left, p.offset)}
}
