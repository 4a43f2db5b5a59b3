"""Numbers as plain text: notations of one value, and values beside it. For rewards that compare numbers exactly."""

from __future__ import annotations

from rlm_audit.kinds import Family, generators, read_kinds

NUMBERS = read_kinds(r"""
number
  draw d=r(1,3*s)  v=Fraction(r(-(10**d),10**d),10**one((0,0,r(0,d))))
  let t=plain(v)  k=r(-3,3)  f=r(1,9)
  same <t>  <t><'.'*(v.denominator==1)>000  +<t> ? v > 0  <format(v.numerator,',')> ? v.denominator == 1
      <t.replace('-','−')>  <v.numerator*f>/<v.denominator*f>  <plain(v/Fraction(10)**k)>e<k>
  change v=v+1  v=v-1  v=v+Fraction(1,10**len(plain(v).partition('.')[2]))  v=-v  v=Fraction(altered(plain(v)))
      v=v*10  v=v/10  v=v-Fraction(1,10**r(12,40))
  other <t> or <plain(v+1)>  <plain(v-1)> to <plain(v+1)>  <t>%  -  +  .  e  e5  /  nan  inf  -inf
""")
FAMILY = Family(generators(NUMBERS), form="<answer>{answer}</answer>")
"""Cases for rewards that compare numbers in an answer tag."""
