package runner

import (
	"context"
	"errors"

	"workflowagent/internal/delivery"
	"workflowagent/internal/protocol"
)

// sender returns the way of the log that the server speaks. A launch without an
// epoch comes from a server with only the stock calls.
func (j *job) sender() delivery.Sender {
	if j.launch.Epoch == 0 {
		return delivery.NewLineSender(j.spool, j.server.PostLogLines)
	}
	return rawSender{j.server}
}

// rawSender sends frames by byte offset.
type rawSender struct{ server Server }

// PutLog sends bytes of a step's log.
func (s rawSender) PutLog(ctx context.Context, step int, offset int64, framed []byte, compress bool) (delivery.Ack, error) {
	ack, err := s.server.PutLog(ctx, step, offset, framed, compress)
	if gap := (*protocol.LogGapError)(nil); errors.As(err, &gap) {
		return delivery.Ack(gap.Ack), &delivery.GapError{Want: gap.Ack.Received}
	}
	return delivery.Ack(ack), err
}
