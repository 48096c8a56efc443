package schedule

import (
	"cmp"
	"container/heap"
)

// queue is a heap of slots, the first one due at index 0. Among slots of one time, the
// slots of a partition follow each other: their messages share a transaction.
type queue []slot

func (q *queue) push(x slot) { heap.Push((*slotHeap)(q), x) }
func (q *queue) pop() slot   { return heap.Pop((*slotHeap)(q)).(slot) } //nolint:forcetypeassert // only slots are pushed

// hasten moves a queued message forward.
func (q *queue) hasten(x slot) {
	for i := range *q {
		if (*q)[i].id == x.id {
			(*q)[i] = x
			heap.Fix((*slotHeap)(q), i)
			return
		}
	}
}

type slotHeap []slot

func (h slotHeap) Len() int { return len(h) }
func (h slotHeap) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(shardFor(h[i].id), shardFor(h[j].id)), h[i].compare(h[j])) < 0
}
func (h slotHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *slotHeap) Push(x any)   { *h = append(*h, x.(slot)) } //nolint:forcetypeassert // see push

func (h *slotHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
