package main

import (
	"dsync-client"
)

// common returns the options that all families have.
func (o order) common() []dsync.Option {
	var options []dsync.Option
	set := func(time *ms, option dsync.Option) {
		if time != nil {
			options = append(options, option)
		}
	}
	value := func(time *ms) ms {
		if time == nil {
			return 0
		}
		return *time
	}
	set(o.Lease, dsync.Lease(value(o.Lease).duration()))
	set(o.Wait, dsync.Wait(value(o.Wait).duration()))
	set(o.RetryFor, dsync.RetryFor(value(o.RetryFor).duration()))
	set(o.MaxHold, dsync.MaxHold(value(o.MaxHold).duration()))
	set(o.Within, dsync.Within(value(o.Within).duration()))
	switch replicas := o.Replicas.(type) {
	case float64:
		options = append(options, dsync.Replicas(int(replicas)))
	case string:
		options = append(options, dsync.AllReplicas())
	}
	if o.Owner != nil {
		options = append(options, dsync.Owner(*o.Owner))
	}
	if o.Disk {
		options = append(options, dsync.Disk())
	}
	return options
}

func (o order) forLock() []dsync.LockOption {
	var options []dsync.LockOption
	for _, option := range o.common() {
		options = append(options, option)
	}
	if o.MinHold != nil {
		options = append(options, dsync.MinHold(o.MinHold.duration()))
	}
	return options
}

func (o order) forSemaphore() []dsync.SemaphoreOption {
	var options []dsync.SemaphoreOption
	for _, option := range o.common() {
		options = append(options, option)
	}
	if o.MinHold != nil {
		options = append(options, dsync.MinHold(o.MinHold.duration()))
	}
	if o.Limit != nil {
		options = append(options, dsync.Limit(*o.Limit))
	}
	if o.Lane != "" {
		options = append(options, dsync.Lane(o.Lane))
	}
	if o.LaneLimit != nil {
		options = append(options, dsync.LaneLimit(*o.LaneLimit))
	}
	if o.Index {
		options = append(options, dsync.Index())
	}
	return options
}

func (o order) forGroup() []dsync.GroupOption {
	var options []dsync.GroupOption
	for _, option := range o.common() {
		options = append(options, option)
	}
	return options
}

func (o order) forOnce() []dsync.OnceOption {
	var options []dsync.OnceOption
	for _, option := range o.common() {
		options = append(options, option)
	}
	if o.Attempts != nil {
		options = append(options, dsync.MaxAttempts(*o.Attempts))
	}
	if o.UntilDone {
		options = append(options, dsync.UntilDone())
	}
	return options
}
