//! Lists that are linked through the objects themselves: they need no memory, and have no bound.
//!
//! A `Stack` and a [`List`] go one way; out of a `Chain` any object is taken at once. The links are atomic only so
//! that shared references may change them: a list belongs to the holder of the value. An object has a
//! link for each list in which it may be at the same time: `Which` names it.
//!
//! Approach rejected: the lists of `intrusive_collections`, whose atomic links take a locked instruction for each
//! object that is put in.

use core::iter::successors;
use core::marker::PhantomData;
use core::ptr;

use crate::slot::Slot;
use crate::sync::Ordering::Relaxed;

/// An object with a link to the one after it.
pub trait Linked<Which = ()>: Sized + Sync + 'static {
    /// The link.
    fn after(&self) -> &Slot<Self>;
}

/// An object with a link to the one before it, too.
pub(crate) trait Chained<Which = ()>: Linked<Which> {
    fn before(&self) -> &Slot<Self>;
}

/// The last one that came is the first one.
pub(crate) struct Stack<T: 'static, Which = ()> {
    pub(crate) first: Option<&'static T>,
    which: PhantomData<fn(Which)>,
}

impl<T: Linked<Which>, Which> Stack<T, Which> {
    pub(crate) const fn new() -> Self {
        Stack {
            first: None,
            which: PhantomData,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T, Which> {
        successors(self.first, |one| one.after().get(Relaxed))
    }

    #[inline]
    pub(crate) fn push(&mut self, object: &'static T) {
        object.after().set(self.first, Relaxed);
        self.first = Some(object);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static T> {
        let object = self.first?;
        self.first = object.after().get(Relaxed);
        Some(object)
    }

    /// Takes out the first one that is wanted.
    pub(crate) fn take(&mut self, wanted: impl Fn(&'static T) -> bool) -> Option<&'static T> {
        let mut before: Option<&'static T> = None;
        for one in self.iter() {
            if wanted(one) {
                let after = one.after().get(Relaxed);
                match before {
                    Some(before) => before.after().set(after, Relaxed),
                    None => self.first = after,
                }
                return Some(one);
            }
            before = Some(one);
        }
        None
    }

    /// Takes this object out. Returns true if it was there.
    pub(crate) fn remove(&mut self, object: &'static T) -> bool {
        self.take(|one| ptr::eq(one, object)).is_some()
    }
}

/// First in, first out, with a front door.
pub struct List<T: 'static, Which = ()> {
    front: Stack<T, Which>,
    last: Option<&'static T>,
}

impl<T: Linked<Which>, Which> Default for List<T, Which> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Linked<Which>, Which> List<T, Which> {
    /// Without objects.
    pub const fn new() -> Self {
        List {
            front: Stack::new(),
            last: None,
        }
    }

    pub(crate) fn first(&self) -> Option<&'static T> {
        self.front.first
    }

    pub(crate) fn last(&self) -> Option<&'static T> {
        self.last
    }

    /// Returns true if there is no object.
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T, Which> {
        self.front.iter()
    }

    /// Adds an object at the end.
    #[inline]
    pub fn push_back(&mut self, object: &'static T) {
        object.after().set(None, Relaxed);
        self.hang(object);
        self.last = Some(object);
    }

    #[inline(always)]
    fn hang(&mut self, object: &'static T) {
        match self.last {
            Some(last) => last.after().set(Some(object), Relaxed),
            None => self.front.first = Some(object),
        }
    }

    /// Adds an object at the front.
    #[inline]
    pub fn push_front(&mut self, object: &'static T) {
        if self.is_empty() {
            self.last = Some(object);
        }
        self.front.push(object);
    }

    /// Moves all of the others to the end.
    pub(crate) fn append(&mut self, others: &mut Self) {
        if let Some(first) = others.first() {
            self.hang(first);
            self.last = others.last;
            *others = Self::new();
        }
    }

    /// Moves all objects of a chain to the end: their links forward are those of a list.
    #[inline]
    pub(crate) fn append_chain(&mut self, others: &mut Chain<T, Which>)
    where
        T: Chained<Which>,
    {
        if let Some(first) = others.first {
            self.hang(first);
            self.last = others.last;
            *others = Chain::new();
        }
    }

    /// Takes the first object.
    #[inline]
    pub fn pop_front(&mut self) -> Option<&'static T> {
        let object = self.front.pop()?;
        if self.is_empty() {
            self.last = None;
        }
        Some(object)
    }

    /// Takes this object out. Returns true if it was there.
    pub(crate) fn remove(&mut self, object: &'static T) -> bool {
        let is_there = self.front.remove(object);
        self.last = self.iter().last();
        is_there
    }
}

/// Goes both ways.
pub(crate) struct Chain<T: 'static, Which = ()> {
    pub(crate) first: Option<&'static T>,
    pub(crate) last: Option<&'static T>,
    which: PhantomData<fn(Which)>,
}

impl<T: Chained<Which>, Which> Chain<T, Which> {
    pub(crate) const fn new() -> Self {
        Chain {
            first: None,
            last: None,
            which: PhantomData,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> + use<T, Which> {
        successors(self.first, |one| one.after().get(Relaxed))
    }

    /// Adds an object at the end.
    #[inline]
    pub(crate) fn push(&mut self, object: &'static T) {
        object.after().set(None, Relaxed);
        object.before().set(self.last, Relaxed);
        match self.last {
            Some(last) => last.after().set(Some(object), Relaxed),
            None => self.first = Some(object),
        }
        self.last = Some(object);
    }

    /// Takes this object out, which must be there.
    #[inline]
    pub(crate) fn remove(&mut self, object: &'static T) {
        let after = object.after().get(Relaxed);
        let before = object.before().get(Relaxed);
        match before {
            Some(before) => before.after().set(after, Relaxed),
            None => self.first = after,
        }
        match after {
            Some(after) => after.before().set(before, Relaxed),
            None => self.last = before,
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<&'static T> {
        self.first.inspect(|first| self.remove(first))
    }

    #[inline]
    pub(crate) fn pop_last(&mut self) -> Option<&'static T> {
        self.last.inspect(|last| self.remove(last))
    }
}
