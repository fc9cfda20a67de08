from judgefree.cli import main

main()
