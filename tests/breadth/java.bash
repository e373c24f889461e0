# java VERSION COLLECTOR: the program Load under one collector, with a flight recording where there is one.
java() {
    local home option="-XX:+Use$2GC" source=Load
    home=$(ls -d ${JAVA_HOMES:-/usr/lib/jvm/*-"$1"-* /opt/*jdk-"$1"*} 2>/dev/null | head -1 || true)
    need "$home/bin/java" "openjdk-$1-jdk-headless"
    "$home/bin/java" "$option" -version >/dev/null 2>&1 || { echo "skipped: $home has no $2 collector"; exit 77; }
    cp "$HERE/programs/Load.java" .
    if [ "$1" -ge 21 ]; then cp "$HERE/programs/VirtualLoad.java" .; source=VirtualLoad; fi
    "$home/bin/javac" Load.java $([ $source = Load ] || echo $source.java)
    local flags="$option -Xmx256m"
    $RUN "$home/bin/java" $flags Load >answer
    [ $source = Load ] || $RUN "$home/bin/java" $flags VirtualLoad >>answer
    $RUN "$home/bin/java" $flags -XX:StartFlightRecording=filename="$SCRATCH/f.jfr",settings=profile Load >out 2>jfr.log || { cat jfr.log; exit 1; }
    grep -v "^\[" out >>answer
    "$home/bin/jfr" summary f.jfr | awk '/jdk.ExecutionSample/ && $2 > 0 { print "samples" }' >>answer
    $RUN "$home/bin/java" $flags -Xcomp -XX:TieredStopAtLevel=1 -version 2>/dev/null && echo compiled >>answer
}
