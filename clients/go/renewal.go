package dsync

import (
	"context"
	"sync"
	"time"
)

// shortestAnswer is how long the answer to a renewal is waited for at least, however short the lease is.
const shortestAnswer = 200 * time.Millisecond

// lineKey tells which holds are renewed together: those of one server that need the same confirmation. So nobody waits
// for the WAIT of others.
type lineKey struct {
	node    string
	confirm confirmation
}

// line renews holds over one connection at a time: all that are due in one write.
type line struct {
	// Busy is full while a connection is in use.
	busy chan struct{}

	mu  sync.Mutex
	due []renewal
}

// renewal is one that is due. Told is called when it has ended.
type renewal struct {
	*grip
	node Node
	asks terms
	told func(error)
}

// renew has the hold renewed, on the connection of all renewals: so no other one can overtake it.
func (g *grip) renew(told func(error)) {
	node, err := g.request.client.find(context.Background(), g.Key())
	if err != nil {
		g.lease.notRenewed(err)
		told(err)
		return
	}
	renewal{grip: g, node: node, told: told}.queue()
}

// queue has it written with all that are due at its node.
func (r renewal) queue() {
	key := lineKey{r.node.Name, r.request.confirm}
	found, _ := r.request.client.lines.LoadOrStore(key, &line{busy: make(chan struct{}, 1)})
	l := found.(*line)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.due = append(l.due, r); len(l.due) == 1 {
		go l.write()
	}
}

// write renews what is due when those before are answered. A connection that does not answer delays it no longer than the
// shortest answer takes: then it goes over another one.
func (l *line) write() {
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-time.After(shortestAnswer):
	}
	l.mu.Lock()
	due := l.due
	l.due = nil
	l.mu.Unlock()
	renewAll(due)
}

// renewAll sends the renewals in one write, and notes what is answered.
func renewAll(due []renewal) {
	within, sent := renewalWithin, now()
	commands := make([][]any, 0, len(due))
	live := due[:0]
	for _, one := range due {
		var err error
		if one.asks, err = one.lease.asks(sent); err != nil {
			one.told(err)
			continue
		}
		live = append(live, one)
		commands = append(commands, one.request.renewal(one.asks.asked))
		within = min(within, max(shortestAnswer, one.asks.length/3))
	}
	if len(live) == 0 {
		return
	}
	session := &session{request: live[0].request, next: live[0].node}
	defer session.close(false)
	confirm := session.confirm
	replies, err := session.send(context.Background(), within, confirm, commands...)
	for i, one := range live {
		session.request, session.next = one.request, Node{}
		reply, failure := session.reply(context.Background(), replies, i, err)
		if one.node = session.next; one.node.Connect != nil {
			one.queue()
			continue
		}
		// What needs no confirmation counts, whatever has become of the others.
		if reply != nil && !(confirm.isWanted() && needsConfirmation(reply)) {
			failure = nil
		}
		failure = session.named(failure)
		switch {
		case failure == nil && number(reply) > 0:
			one.lease.renewed(sent, one.asks)
		case failure == nil, tellsTheEnd(failure):
			one.lease.notFound(failure)
		default:
			one.lease.notRenewed(failure)
		}
		one.told(failure)
	}
}
